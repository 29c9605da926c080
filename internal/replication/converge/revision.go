package converge

import (
	"context"
	"fmt"
	"maps"
)

// revision returns that of the source, 0 if it has none. What the source showed before is no newer.
func (o SourceConfig) revision() uint64 {
	if o.Revision == nil {
		return 0
	}
	return o.Revision()
}

// noteSeen notes what revision of the source a message tells of.
func (p *Peer) noteSeen(f Facet, m Message) {
	var revision uint64
	switch m := m.(type) {
	case Put:
		revision = m.Revision
	case Delete:
		revision = m.Revision
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision > p.seen[f] {
		p.seen.set(f, revision)
	}
}

// Seen returns, by facet, the newest revision of the source that a peer has told of. Whichever process of that side is connected to next
// must show it before it says anything, see Reach. A new Peer has seen nothing.
func (p *Peer) Seen() map[Facet]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(map[Facet]uint64(p.seen))
}

// Reach waits until the sources show what the peer has seen of them already, at another process with its own cache. It fails if they do
// not before the context ends; then no session must begin.
func (p *Peer) Reach(ctx context.Context, seen map[Facet]uint64) error {
	for f, source := range p.options.Sources {
		revision, ok := seen[f]
		if !ok || source.Reach == nil {
			continue
		}
		if err := source.Reach(ctx, revision); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}
