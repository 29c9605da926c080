package enrollment

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// labelManagedBy, with its value, marks the requests of principals.
const labelManagedBy, managedBy = "app.kubernetes.io/managed-by", "argocd-agent-principal"

const (
	// requestLife is longer than any principal waits for a request, also if the API server has another time.
	requestLife = issueTimeout + deletion + 5*time.Minute
	// lookAgain is when the requests are listed again that could not be.
	lookAgain = time.Minute
)

// CleanUp deletes the requests that were left by principals which were killed: those that there are when it begins, each when it is older than
// any lasts. It returns when there are none any more, or the context ends.
func (s CertManager) CleanUp(ctx context.Context) {
	for {
		again, err := s.deleteOld(ctx)
		switch {
		case ctx.Err() != nil, apierrors.IsNotFound(err): // without cert-manager nothing is left
			return
		case apierrors.IsForbidden(err):
			s.Logger.Warn("CertificateRequests of principals that were killed are not deleted: allow the principal to list and delete them", "namespace", s.Namespace,
				"error", err)
			return
		case err != nil:
			again = lookAgain
		case again == 0:
			return
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// deleteOld deletes the requests that are old, and returns how long the youngest of the others will take to be so, 0 if there is none.
func (s CertManager) deleteOld(ctx context.Context) (again time.Duration, err error) {
	list := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) { return s.requests().List(ctx, o) }))
	err = list.EachListItem(ctx, metav1.ListOptions{LabelSelector: labelManagedBy + "=" + managedBy}, func(object runtime.Object) error {
		request, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		if left := requestLife - time.Since(request.GetCreationTimestamp().Time); left > 0 {
			again = max(again, left)
			return nil
		}
		uid := request.GetUID()
		err = s.requests().Delete(ctx, request.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("CertificateRequest %s/%s: %w", s.Namespace, request.GetName(), err)
		}
		s.Logger.Info("Deleted a CertificateRequest that a principal left", "namespace", s.Namespace, "name", request.GetName())
		return nil
	})
	return again, err
}
