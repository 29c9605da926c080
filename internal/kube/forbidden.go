package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// IsForbidden reports whether an error is an API server's that forbids a request, and would again. One that is starting forbids
// nearly everything, since its authorizer and its admission plugins answer from caches that are still empty; so it is asked
// whether it is ready. Everybody who has a name may know that, by Kubernetes' own role system:public-info-viewer. Where that was
// taken away, nothing is known to be forbidden for good.
func IsForbidden(ctx context.Context, server rest.Interface, err error) bool {
	return apierrors.IsForbidden(err) && server.Get().AbsPath("/readyz").Do(ctx).Error() == nil
}
