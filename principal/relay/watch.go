package relay

import (
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/authn"
)

// Watch sends a component the directory once that is complete, and then its changes. The first update replaces everything
// that the component knew.
func (e *Exchange) Watch(_ *tunnelv1.WatchRequest, stream tunnelv1.Relay_WatchServer) error {
	ctx, who, err := e.options.Gate.Component(stream.Context())
	if err != nil {
		return err
	}
	defer who.End()
	select {
	case <-e.options.Directory.complete:
	case <-e.draining:
		return authn.ErrDraining
	case <-ctx.Done():
		return over(ctx)
	}
	w := e.options.Directory.watch()
	defer e.options.Directory.unwatch(w)
	for first := true; ; first = false {
		updates := e.options.Directory.updates(w)
		for i, update := range updates {
			update.More = first && i < len(updates)-1
			if err := stream.Send(update); err != nil {
				return err
			}
		}
		select {
		case <-w.changed:
		case <-e.draining:
			return authn.ErrDraining
		case <-ctx.Done():
			return over(ctx)
		}
	}
}
