package registration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// When a Secret that could not be updated is tried again.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Wait waits until all that it needs is known, and reports whether that came before the end of the context.
func (r *Registrar) Wait(ctx context.Context) bool {
	return r.said.store.Wait(ctx) && (r.options.Source == nil || r.options.Source.store.Wait(ctx))
}

// Ready returns nil once all that it needs is known, and otherwise why it is not.
func (r *Registrar) Ready() error {
	if err := r.said.store.Ready(); err != nil {
		return fmt.Errorf("enrollment tokens in Secret %s: %w", enrolltoken.SecretName, err)
	}
	if r.options.Source == nil {
		return nil
	}
	if err := r.options.Source.store.Ready(); err != nil {
		return fmt.Errorf("certificate in the Secret of --self-registration-client-cert-secret: %w", err)
	}
	return nil
}

// Run keeps the Secrets up to date until the context ends: when the principal starts, maybe with other settings, and when the certificate
// changes. What somebody else changes in one is put right when its agent connects, and not before: two principals with different
// settings, as during an update, must not write against each other.
func (r *Registrar) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { r.said.store.Run(ctx) })
	if r.options.Source != nil {
		parts.Go(func() { r.options.Source.run(ctx, r.refreshAll) })
	}
	parts.Go(func() {
		if r.Wait(ctx) && r.options.Clusters.Wait(ctx) {
			r.refreshAll()
		}
	})
	parts.Go(func() {
		defer context.AfterFunc(ctx, r.queue.ShutDown)()
		for {
			agent, shutdown := r.queue.Get()
			if shutdown {
				return
			}
			r.refreshOne(ctx, agent)
			r.queue.Done(agent)
		}
	})
	parts.Wait()
}

// refreshAll has all self-registered Secrets looked at.
func (r *Registrar) refreshAll() {
	for _, agent := range r.options.Clusters.AllRegistered() {
		r.queue.Add(agent)
	}
}

// refreshOne brings a Secret up to date whose agent says nothing now.
func (r *Registrar) refreshOne(ctx context.Context, agent string) {
	known := r.options.Clusters.Registered(agent)
	wanted, err := r.wanted(agent)
	if known == nil || err != nil { // without a certificate the Secret stays as it is; that was logged
		r.queue.Forget(agent)
		return
	}
	if err := r.refresh(ctx, known, wanted); err != nil && ctx.Err() == nil {
		r.results.WithLabelValues(failed).Inc()
		r.logger.Warn("Failed to update a self-registered cluster Secret; retrying", "agent", agent, "error", err)
		r.queue.AddRateLimited(agent)
		return
	}
	r.queue.Forget(agent)
}

// create makes the Secret of an agent. If somebody else has just made one, that stays, and is looked after if a principal made it.
func (r *Registrar) create(ctx context.Context, wanted argocd.Registration) error {
	done, err := r.admit(wanted.Agent)
	if err != nil {
		return err
	}
	defer done()
	name := argocd.ClusterSecretName(wanted.Agent)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: name}, Type: corev1.SecretTypeOpaque}
	if err := wanted.Write(secret); err != nil {
		return err
	}
	answer, err := r.options.Secrets.Create(ctx, secret, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.update(ctx, wanted)
	case err != nil:
		return err
	}
	r.results.WithLabelValues(created).Inc()
	r.options.Logger.Info("Registered an agent's cluster", "agent", wanted.Agent, "secret", r.options.Namespace+"/"+name, "mode", wanted.Mode,
		"server", wanted.Server)
	return r.options.Clusters.RecordWrite(answer)
}

// refresh updates a Secret if what is known of it is not as wanted.
func (r *Registrar) refresh(ctx context.Context, known *argocd.Registered, wanted argocd.Registration) error {
	differences, err := known.Differences(wanted)
	if err != nil || len(differences) == 0 {
		return err
	}
	return r.update(ctx, wanted)
}

// update writes a Secret that is there, on the version that it reads, so that nobody else's write is lost.
func (r *Registrar) update(ctx context.Context, wanted argocd.Registration) error {
	name := argocd.ClusterSecretName(wanted.Agent)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := r.options.Secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		owner := found.Labels[argocd.LabelAgent]
		switch {
		case owner != wanted.Agent && (owner != "" || !argocd.IsSelfRegistered(found)):
			return status.Errorf(codes.FailedPrecondition, "Secret %s/%s on the hub has the name that the agent's cluster Secret would have, and is not "+
				"agent %s's by its label %s: rename the agent, or delete that Secret if nobody needs it", r.options.Namespace, name, wanted.Agent, argocd.LabelAgent)
		case !argocd.IsSelfRegistered(found):
			return r.options.Clusters.RecordWrite(found) // people made it meanwhile
		}
		differences, err := argocd.ReadRegistered(found).Differences(wanted)
		if err != nil || len(differences) == 0 {
			return errors.Join(err, r.options.Clusters.RecordWrite(found))
		}
		if err := wanted.Write(found); err != nil {
			return err
		}
		answer, err := r.options.Secrets.Update(ctx, found, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		r.results.WithLabelValues(updated).Inc()
		r.options.Logger.Info("Updated a self-registered cluster Secret", "agent", wanted.Agent, "secret", r.options.Namespace+"/"+name,
			"changed", strings.Join(differences, ", "))
		return r.options.Clusters.RecordWrite(answer)
	})
}
