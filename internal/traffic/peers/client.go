package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// Waits between attempts to reach another principal, doubled from the first up to the last.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = 5 * time.Second
)

// Limits on what another principal may have this one keep.
const (
	maxHoldings = 200_000
	// maxPeers is how many addresses are followed. A hub has a few principals; whoever answers for DNS, or writes EndpointSlices, may name any number.
	maxPeers = 100
	maxText  = 64  // of an ID and a version
	maxName  = 253 // of a host
	// maxAhead is how far its clock may be ahead of this one's. An epoch is a time; one that is far ahead would rule for as long.
	maxAhead = time.Hour
	// firstTimeout is how long it may take to say who it is and all that it holds. Until then nobody knows whether all have been heard.
	firstTimeout = 15 * time.Second
)

// nonsenseError is what no principal says: whoever said it is none, or is much newer.
type nonsenseError struct{ error }

// Unwrap returns what is wrong.
func (e nonsenseError) Unwrap() error { return e.error }

func nonsense(format string, args ...any) error { return nonsenseError{fmt.Errorf(format, args...)} }

// Options configure Peers.
type Options struct {
	Roster *Roster
	// Addresses follows the addresses of all principals, of which this may be one, until the context ends. It calls report with all of
	// them, again after each change.
	Addresses func(ctx context.Context, report func(addresses []string))
	// Dial returns a connection to a principal, which the caller closes.
	Dial func(address string) (*grpc.ClientConn, error)
	// Left, if set, is called when another principal shuts down, and no agent is reached through it any more.
	Left func()
	// Prefix is that of the metrics, such as "argocd_principal".
	Prefix     string
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Peers are the other principals of the hub.
type Peers struct {
	options Options
	metrics metrics

	mu        sync.Mutex
	connected map[string]connected // by the IDs of the principals. Guarded by mu
	tried     map[string]bool      // whether each address has been tried. Guarded by mu
	settled   chan struct{}        // closed when all have been, and one is connected. Guarded by mu
}

// connected is a principal that is connected.
type connected struct {
	Peer
	conn *grpc.ClientConn
}

// Peer is another principal.
type Peer struct {
	// ID is of its process alone.
	ID string
	// Name is that of its Pod or host, and Build its version.
	Name, Build string
	// Address is where it was reached, host:port.
	Address string
	// Draining says that it shuts down: it serves what it holds, and nobody is to be sent to it for anything else.
	Draining bool
}

// All returns the principals that are connected, by their IDs.
func (p *Peers) All() map[string]Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]Peer, len(p.connected))
	for id, c := range p.connected {
		all[id] = c.Peer
	}
	return all
}

// Settled is closed once each of the addresses has been tried, and one principal at least is connected: by then this one knows of all
// agents that can be reached.
func (p *Peers) Settled() <-chan struct{} { return p.settled }

// try notes which addresses there are, or that some have been tried.
func (p *Peers) try(note func(tried map[string]bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	note(p.tried)
	for _, tried := range p.tried {
		if !tried {
			return
		}
	}
	select {
	case <-p.settled:
	default:
		if len(p.connected) > 0 {
			close(p.settled)
		}
	}
}

// Conn returns the connection to a principal, nil if it is not connected.
func (p *Peers) Conn(principal string) grpc.ClientConnInterface {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.connected[principal]; ok {
		return c.conn
	}
	return nil
}

// New returns peers, none of which is connected before Run runs.
func New(o Options) *Peers {
	return &Peers{
		options: o, metrics: newMetrics(o), connected: make(map[string]connected), tried: make(map[string]bool),
		settled: make(chan struct{}),
	}
}

// Run follows the other principals until the context ends.
func (p *Peers) Run(ctx context.Context) {
	var followers sync.WaitGroup
	defer followers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running := make(map[string]context.CancelFunc)
	p.options.Addresses(ctx, func(addresses []string) {
		if addresses = slices.Compact(slices.Sorted(slices.Values(addresses))); len(addresses) > maxPeers {
			p.options.Logger.Warn("More addresses than a hub has principals; only the first are used", "addresses", len(addresses), "used", maxPeers)
			addresses = addresses[:maxPeers]
		}
		wanted := make(map[string]bool, len(addresses))
		for _, address := range addresses {
			wanted[address] = true
			if running[address] == nil {
				one, stop := context.WithCancel(ctx)
				running[address] = stop
				followers.Go(func() { p.follow(one, address) })
			}
		}
		for address, stop := range running {
			if !wanted[address] {
				stop()
				delete(running, address)
			}
		}
		p.try(func(tried map[string]bool) {
			maps.DeleteFunc(tried, func(address string, _ bool) bool { return !wanted[address] })
			for address := range wanted {
				if _, known := tried[address]; !known {
					tried[address] = false
				}
			}
		})
	})
	<-ctx.Done()
}

// Why a principal is not followed. One may have several addresses; should the one go by which it is, another is needed.
var (
	errSelf  = errors.New("this is the address of this principal itself")
	errKnown = errors.New("the principal at this address is connected by another one")
)

// follow follows the principal at an address until the context ends, or it turns out to be one that is known.
func (p *Peers) follow(ctx context.Context, address string) {
	logger := p.options.Logger.With("address", address)
	var said string
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		lasted, err := p.watch(ctx, address, logger)
		p.done(address)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errSelf):
			logger.Debug("This is an address of this principal itself; it is not followed")
			return
		case errors.Is(err, errKnown):
			wait = lastWait
		case lasted >= lastWait: // who connects and says nonsense, again and again, is asked ever more seldom
			wait, said = firstWait, ""
		}
		p.metrics.fail(err)
		if reason := status.Convert(err).Message(); reason != said {
			said = reason
			logger.Warn("Connection to peer failed; retrying", "err", reason)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2)) //nolint:gosec // it spreads load
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// done notes that an address has been tried.
func (p *Peers) done(address string) {
	p.try(func(tried map[string]bool) {
		if _, wanted := tried[address]; wanted {
			tried[address] = true
		}
	})
}

// watch takes in what the principal at an address holds until the call ends, and returns for how long it was connected.
func (p *Peers) watch(ctx context.Context, address string, logger *slog.Logger) (lasted time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := p.options.Dial(address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // it only ever says that it was closed before
	self := p.options.Roster.self
	stream, err := peerv1.NewPeerClient(conn).Watch(ctx, &peerv1.WatchRequest{Id: self.ID, Name: self.Name, Build: version.Version()})
	if err != nil {
		return 0, err
	}
	late := time.AfterFunc(firstTimeout, func() { cancel(fmt.Errorf("it has not said within %s which agents it serves", firstTimeout)) })
	peer, held, err := first(stream, p.check)
	late.Stop()
	if err != nil {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	peer.Address = address
	if err := p.connect(peer, conn); err != nil {
		return 0, err
	}
	logger = logger.With("peer", peer.Name)
	defer p.disconnect(peer.ID, logger)
	since := time.Now()
	err = p.take(peer, held, stream, logger)
	return time.Since(since), err
}

// take takes in what a principal that is connected holds, and then each change, until the stream ends.
func (p *Peers) take(peer Peer, held map[key]Holding, stream grpc.ServerStreamingClient[peerv1.RosterUpdate], logger *slog.Logger) error {
	logger.Info("Connected to peer", "agents", len(held), "build", peer.Build)
	p.options.Roster.update(peer.ID, held, nil, true)
	p.options.Roster.join(peer.ID)
	p.done(peer.Address)
	known := make(map[key]struct{}, len(held))
	for {
		for k := range held {
			known[k] = struct{}{}
		}
		if len(known) > maxHoldings {
			return nonsense("it says that it holds more than %d sessions and tunnels of agents", maxHoldings)
		}
		update, err := stream.Recv()
		if err != nil {
			return err
		}
		var released []key
		if held, released, err = decode(peer.ID, update); err != nil {
			return err
		}
		for _, k := range released {
			delete(known, k)
		}
		if update.GetDraining() {
			p.drain(peer.ID, logger)
		}
		p.options.Roster.update(peer.ID, held, released, false)
		if left(known, released, update.GetDraining()) && p.options.Left != nil {
			p.options.Left()
		}
	}
}

// first receives the first update, which says who the peer is and all that it holds; the latter only if check has nothing against its ID.
func first(stream grpc.ServerStreamingClient[peerv1.RosterUpdate], check func(id string) error) (Peer, map[key]Holding, error) {
	var peer Peer
	all := make(map[key]Holding)
	for {
		update, err := stream.Recv()
		if err != nil {
			return Peer{}, nil, err
		}
		if of := update.GetPrincipal(); peer.ID == "" {
			peer = Peer{ID: of.GetId(), Name: of.GetName(), Build: cut(of.GetBuild())}
			if !isID(peer.ID) || len(peer.Name) > maxName {
				return Peer{}, nil, nonsense("it does not say who it is: is that a principal?")
			}
			if err := check(peer.ID); err != nil {
				return Peer{}, nil, err
			}
		}
		held, _, err := decode(peer.ID, update)
		if err != nil {
			return Peer{}, nil, err
		}
		peer.Draining = peer.Draining || update.GetDraining()
		maps.Copy(all, held)
		if len(all) > maxHoldings {
			return Peer{}, nil, nonsense("it says that it holds more than %d sessions and tunnels of agents", maxHoldings)
		}
		if !update.GetMore() {
			return peer, all, nil
		}
	}
}

// decode returns what an update says, but for kinds that this build does not know. What no principal says is a nonsenseError.
func decode(principal string, update *peerv1.RosterUpdate) (held map[key]Holding, released []key, err error) {
	held = make(map[key]Holding, len(update.GetHeld()))
	latest := uint64(time.Now().Add(maxAhead).UnixMilli())
	for _, h := range update.GetHeld() {
		if !isKnown(h) {
			continue
		}
		k, err := keyOf(h)
		if err != nil {
			return nil, nil, err
		}
		if h.GetEpoch() > latest {
			return nil, nil, nonsense("its epoch of agent %s is more than %s ahead: compare the clocks", k.agent, maxAhead)
		}
		held[k] = Holding{
			Principal: principal, Epoch: h.GetEpoch(), Since: h.GetSince().AsTime(), About: About{Build: cut(h.GetBuild()), Mode: cut(h.GetMode())},
		}
	}
	for _, h := range update.GetReleased() {
		if !isKnown(h) {
			continue
		}
		k, err := keyOf(h)
		if err != nil {
			return nil, nil, err
		}
		released = append(released, k)
	}
	return held, released, nil
}

// isKnown reports whether this build knows what kind of thing that is. A newer principal may hold others.
func isKnown(h *peerv1.Held) bool { return h.GetKind() == Session || h.GetKind() == Tunnel }

// cut returns the beginning of a text.
func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

func keyOf(h *peerv1.Held) (key, error) {
	agent, err := identity.ParseAgent(h.GetAgent())
	if err != nil {
		return key{}, nonsense("it names an agent that cannot be: %w", err)
	}
	return key{h.GetKind(), string(agent)}, nil
}

// connect notes a connection to a principal, unless there is one.
func (p *Peers) connect(peer Peer, conn *grpc.ClientConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.connected[peer.ID]; known {
		return errKnown
	}
	p.connected[peer.ID] = connected{peer, conn}
	p.metrics.connected.Set(float64(len(p.connected)))
	return nil
}

// check returns why a principal is not followed that has just said its ID.
func (p *Peers) check(id string) error {
	if id == p.options.Roster.self.ID {
		return errSelf
	}
	if p.Conn(id) != nil {
		return errKnown
	}
	return nil
}

// isID reports whether a text may be the ID of a principal: letters and digits, as in the names of clusters and the ids of dials that are made of it.
func isID(text string) bool {
	strange := func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }
	return text != "" && len(text) <= maxText && !strings.ContainsFunc(text, strange)
}

// left reports whether the last agent went to another principal that was reached through one that shuts down.
func left(held map[key]struct{}, released []key, draining bool) bool {
	reached := func(k key) bool { return k.kind == Tunnel }
	return draining && slices.ContainsFunc(released, reached) && !slices.ContainsFunc(slices.Collect(maps.Keys(held)), reached)
}

// drain notes that a principal shuts down.
func (p *Peers) drain(id string, logger *slog.Logger) {
	p.mu.Lock()
	c := p.connected[id]
	first := !c.Draining
	c.Draining = true
	p.connected[id] = c
	p.mu.Unlock()
	if first {
		logger.Info("Peer is shutting down")
		p.options.Roster.notify(key{kind: Session})
	}
}

// disconnect forgets a connection, and all that the principal held: nobody is reached through it.
func (p *Peers) disconnect(id string, logger *slog.Logger) {
	p.mu.Lock()
	delete(p.connected, id)
	p.metrics.connected.Set(float64(len(p.connected)))
	p.mu.Unlock()
	p.options.Roster.forget(id)
	logger.Info("Disconnected from peer")
}

func compare(a, b key) int {
	return cmp.Or(strings.Compare(a.agent, b.agent), cmp.Compare(a.kind, b.kind))
}
