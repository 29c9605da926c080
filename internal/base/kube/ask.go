package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Ask makes a request, and reports whether it is forbidden, and would be again. An API server that is starting forbids nearly
// everything, since its authorizer and its admission plugins answer from caches that are still empty. So one that forbids is asked
// whether it is ready, and if it is, once more for the same, which it may have forbidden before it was. Everybody who has a name
// may know whether it is ready, by Kubernetes' own role system:public-info-viewer. Where that was taken away, nothing is known to be
// forbidden for good.
func Ask(ctx context.Context, server rest.Interface, request func() error) (forbidden bool, err error) {
	if err = request(); !isForbidden(err) {
		return false, err
	}
	if server.Get().AbsPath("/readyz").Do(ctx).Error() != nil {
		return false, err
	}
	err = request()
	return isForbidden(err), err
}

func isForbidden(err error) bool { return apierrors.IsForbidden(err) && !IsForeign(err) }

// IsForeign reports whether an error is of an answer that is not in the form of Kubernetes' API: it is that of a proxy which cannot
// reach the API server, say, or of an API server that does not have the kind. Its code is not to be believed: that there is no such
// page does not mean that the object is gone.
func IsForeign(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
