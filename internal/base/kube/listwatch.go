package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ListFunc asks an API server for a kind's objects.
type ListFunc = func(context.Context, metav1.ListOptions) (runtime.Object, error)

// WatchFunc asks an API server for what becomes of a kind's objects.
type WatchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// ListWatch returns what one of client-go's Reflectors is to follow an API server by. It asks for more than a Reflector by itself:
//
//   - Lists are the newest. A Reflector would first take what an API server has cached, which may be from before our own last
//     writes.
//   - A watch that goes on where one has ended does so only if the API server has come as far. One whose etcd was restored from a
//     backup has not: it would accept the watch, and show nothing until its revisions have come as far again. One that has come
//     as far by then is not told apart.
func ListWatch(list ListFunc, watches WatchFunc) *cache.ListWatch {
	resumes := false // the next watch goes on where one has ended. A Reflector does one thing at a time
	newest := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.ResourceVersion = "" // by any other an API server may answer with what it has cached or, in pages, with what was then
		return list(ctx, o)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			resumes = false
			return newest(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if resumes && o.SendInitialEvents == nil {
				if err := reached(ctx, newest, o.ResourceVersion); err != nil {
					return nil, err
				}
			}
			resumes = true
			return watches(ctx, o)
		},
	}
}

// reached returns an error unless the API server has come as far as a revision.
func reached(ctx context.Context, list ListFunc, revision string) error {
	one, err := list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	newest, err := meta.ListAccessor(one)
	if err != nil {
		return fmt.Errorf("read a list's metadata: %w", err)
	}
	order, err := resourceversion.CompareResourceVersion(newest.GetResourceVersion(), revision)
	if err != nil {
		return fmt.Errorf("the API server's revision after %s: %w", revision, err)
	}
	if order < 0 {
		return apierrors.NewResourceExpired(fmt.Sprintf("the API server has gone back from revision %s to %s", revision, newest.GetResourceVersion()))
	}
	return nil
}
