package relay

import (
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// Watch sends a component that dials agents the directory once that is complete, and then its changes. The first update replaces everything
// that the component knew.
func (r *Relay) Watch(_ *tunnelv1.WatchRequest, stream tunnelv1.Relay_WatchServer) error {
	ctx, end, err := r.options.Authn.Admit(stream.Context(), string(tunnel.Kube), string(tunnel.Redis))
	if err != nil {
		return err
	}
	defer end()
	select {
	case <-r.options.Directory.complete:
	case <-r.draining:
		return goaway.Err
	case <-ctx.Done():
		return contextStatus(ctx)
	}
	w := r.options.Directory.watch()
	defer r.options.Directory.unwatch(w)
	for first := true; ; first = false {
		updates := r.options.Directory.updates(w)
		for i, update := range updates {
			update.More = first && i < len(updates)-1
			if err := stream.Send(update); err != nil {
				return err
			}
		}
		select {
		case <-w.changed:
		case <-r.draining:
			return goaway.Err
		case <-ctx.Done():
			return contextStatus(ctx)
		}
	}
}
