package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"
)

const (
	// maxShown is how many objects an error about many describes.
	maxShown = 3
	// reconnectPause is the time between two tries to reach an API server that is away.
	reconnectPause = 100 * time.Millisecond
)

// Objects are the present objects of a selection, by namespace/name (by name where there is no namespace).
type Objects map[string]*unstructured.Unstructured

// Wait watches one object until the condition holds, and returns it as it was then. The condition is given nil when the
// object does not exist. When ctx ends before, the error shows the object as it was seen last.
func (c *Cluster) Wait(ctx context.Context, s Selection, holds func(*unstructured.Unstructured) bool) (*unstructured.Unstructured, error) {
	var last *unstructured.Unstructured
	_, err := c.WaitAll(ctx, s, func(objects Objects) bool {
		last = nil
		for _, object := range objects {
			last = object
		}
		return holds(last)
	})
	return last, err
}

// WaitAll watches all objects of a selection until the condition holds for them together, and returns them as they were
// then, for the caller to read only. When ctx ends before, the error shows some of them as they were seen last.
func (c *Cluster) WaitAll(ctx context.Context, s Selection, holds func(Objects) bool) (Objects, error) {
	var objects Objects
	for {
		done, err := c.follow(ctx, s, &objects, holds)
		switch {
		case done:
			return objects, nil
		case ctx.Err() != nil:
			return objects, fmt.Errorf("wait for %s on %s: %w; last seen:\n%s", s, c.Name, ctx.Err(), describe(objects))
		case transient(err):
			pause(ctx)
		case !errors.Is(err, errWatchEnded):
			return objects, fmt.Errorf("wait for %s on %s: %w; last seen:\n%s", s, c.Name, err, describe(objects))
		}
	}
}

// errWatchEnded is the ordinary end of a watch, after which one lists again.
var errWatchEnded = errors.New("watch ended")

// transient tells whether an error came from the way to the API server rather than from it: it may be about to come back.
func transient(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
	}
	return !errors.Is(err, errWatchEnded)
}

// pause gives an API server that is away the time to come back. Nothing tells when it does.
func pause(ctx context.Context) {
	timer := time.NewTimer(reconnectPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// follow lists, then watches, until the condition holds or the watch ends.
func (c *Cluster) follow(ctx context.Context, s Selection, objects *Objects, holds func(Objects) bool) (bool, error) {
	list, err := c.Of(s).List(ctx, s.options())
	if err != nil {
		return false, err
	}
	*objects = make(Objects, len(list.Items))
	for i := range list.Items {
		(*objects)[key(&list.Items[i])] = &list.Items[i]
	}
	if holds(*objects) {
		return true, nil
	}
	options := s.options()
	options.ResourceVersion = list.GetResourceVersion()
	watcher, err := c.Of(s).Watch(ctx, options)
	if err != nil {
		return false, err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			return false, errWatchEnded
		}
		if event.Type == watch.Deleted {
			delete(*objects, key(object))
		} else {
			(*objects)[key(object)] = object
		}
		if holds(*objects) {
			return true, nil
		}
	}
	return false, errWatchEnded
}

func (s Selection) options() metav1.ListOptions {
	if s.Name == "" {
		return metav1.ListOptions{}
	}
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", s.Name).String()}
}

func key(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

func describe(objects Objects) string {
	if len(objects) == 0 {
		return "(none)\n"
	}
	var text strings.Builder
	for _, object := range objects {
		if text.Len() > 0 && strings.Count(text.String(), "---\n") == maxShown {
			fmt.Fprintf(&text, "(and others, %d in all)\n", len(objects))
			break
		}
		shown := object.DeepCopy()
		shown.SetManagedFields(nil)
		data, err := yaml.Marshal(shown.Object)
		if err != nil {
			data = []byte(err.Error() + "\n")
		}
		text.WriteString("---\n" + string(data))
	}
	return text.String()
}
