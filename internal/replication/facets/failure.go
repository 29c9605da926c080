package facets

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Why writes fail, besides the reasons that Kubernetes has for that.
const (
	reasonWebhook = "AdmissionWebhook" // one denied it, or did not answer
	reasonPolicy  = "AdmissionPolicy"
	reasonRefused = "Refused" // by this side's own rules, such as its allowed namespaces
	reasonOther   = "Other"   // most often nobody answered
)

// failureReason returns why a write failed, in one of a few words: admission webhooks may answer with any reason, and metrics must
// not grow by that. It is empty if nothing failed that anybody could mend.
func failureReason(err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, errNotThere), errors.Is(err, errOccupied), errors.Is(err, errTerminating), errors.Is(err, context.Canceled):
		return ""
	case strings.Contains(text, "admission webhook") || strings.Contains(text, "failed calling webhook"):
		return reasonWebhook
	case strings.Contains(text, "ValidatingAdmissionPolicy"):
		return reasonPolicy
	case errors.Is(err, errContended):
		return string(metav1.StatusReasonConflict)
	case errors.Is(err, context.DeadlineExceeded):
		return string(metav1.StatusReasonTimeout)
	}
	switch reason := apierrors.ReasonForError(err); reason {
	case metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists,
		metav1.StatusReasonConflict, metav1.StatusReasonInvalid, metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout,
		metav1.StatusReasonTooManyRequests, metav1.StatusReasonBadRequest, metav1.StatusReasonRequestEntityTooLarge,
		metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable:
		return string(reason)
	}
	if errors.Is(err, converge.ErrRefused) {
		return reasonRefused
	}
	return reasonOther
}

// countedReplica is a replica whose failed writes are counted.
type countedReplica struct {
	converge.Replica

	facet converge.Facet
	count func(f converge.Facet, reason string)
}

// Apply implements converge.Replica.
func (r countedReplica) Apply(ctx context.Context, key converge.Key, obj converge.Object) (converge.State, error) {
	state, err := r.Replica.Apply(ctx, key, obj)
	r.failed(err)
	return state, err
}

// Remove implements converge.Replica.
func (r countedReplica) Remove(ctx context.Context, key converge.Key, uid string) (converge.State, error) {
	state, err := r.Replica.Remove(ctx, key, uid)
	r.failed(err)
	return state, err
}

func (r countedReplica) failed(err error) {
	if err == nil {
		return
	}
	if reason := failureReason(err); reason != "" {
		r.count(r.facet, reason)
	}
}

// counted has the failed writes of all replicas counted.
func (c *Cluster) counted(s Share) Share {
	for f, config := range s.Replicas {
		config.Replica = countedReplica{config.Replica, f, c.options.Reporter.CountFailedWrite}
		s.Replicas[f] = config
	}
	return s
}
