package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Ask makes a request, and reports whether it is forbidden, and would be again. An API server that is starting forbids nearly
// everything, since its authorizer and its admission plugins answer from caches that are still empty. So one that forbids is asked
// whether it is ready, and if it is, once more for the same, which it may have forbidden before it was. Everybody who has a name
// may know whether it is ready, by Kubernetes' own role system:public-info-viewer. Where that was taken away, nothing is known to be
// forbidden for good.
func Ask(ctx context.Context, server rest.Interface, request func() error) (forbidden bool, err error) {
	if err = request(); !apierrors.IsForbidden(err) {
		return false, err
	}
	if server.Get().AbsPath("/readyz").Do(ctx).Error() != nil {
		return false, err
	}
	err = request()
	return apierrors.IsForbidden(err), err
}
