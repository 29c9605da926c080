package carry

import (
	"context"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
)

// stage is what one measurement works on.
type stage struct {
	*ground
	carrier carrier
	meter   *contest.Meter
}

// createWithStatus brings Applications with a status to hub and spoke.
func (s *stage) createWithStatus(ctx context.Context, status load.Status, names ...string) error {
	if err := s.carrier.carry(ctx, down); err != nil {
		return err
	}
	err := s.await(ctx, s.spoke, load.Present, names, func() error { return s.hub.Create(ctx, Spoke, names...) })
	if err != nil {
		return err
	}
	if err := s.carrier.carry(ctx, up); err != nil {
		return err
	}
	return s.await(ctx, s.hub, load.Showing(status), names, func() error {
		_, err := s.spoke.WriteStatuses(ctx, []load.Status{status}, names...)
		return err
	})
}

// await does something and returns when the condition holds for all of the named Applications.
func (s *stage) await(ctx context.Context, site load.Site, holds func(load.Sighting) bool, names []string, do func() error) error {
	view, stop, err := load.Watch(ctx, site)
	if err != nil {
		return err
	}
	defer stop()
	expected := view.Expect(holds, names...)
	if err := do(); err != nil {
		return err
	}
	_, err = expected.Wait(ctx)
	return err
}
