package front

import (
	"context"
	"errors"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// errTooLarge ends a connection on which Redis says more at once than may be kept.
var errTooLarge = errors.New("the hub's Redis said more at once than may be kept")

// treatment is what becomes of a reply, or of something that Redis says unasked.
type treatment uint8

const (
	passOn treatment = iota // as it comes, in pieces
	keep                    // until it is complete, and then look at it
	drop                    // it is not wanted
)

// replies reads what the hub's Redis says to a client, and passes it on. One goroutine owns it.
//
// All that the client subscribes to, it subscribes to at the hub's Redis, also what belongs to agents: so Redis says whether it
// may, counts, and confirms, and what it confirms is what we then follow at the agents too. Nobody speaks on those channels at
// the hub as long as the hub has no such application of its own.
type replies struct {
	*client

	scanner    resp.Replies
	current    expected // what the next reply is for
	expecting  bool     // whether there is a current
	treatment  treatment
	kept       []byte // of the reply that is being read
	monitoring bool
	subscribed map[string]map[string]struct{} // channels by kind of subscription
}

func newReplies(c *client) *replies {
	return &replies{client: c, subscribed: make(map[string]map[string]struct{})}
}

// run passes on replies until the connection to Redis, or the client, ends.
func (r *replies) run(ctx context.Context) {
	buffer := make([]byte, firstBuffer)
	for {
		if r.closing.Load() {
			_ = r.hub.SetReadDeadline(time.Now().Add(drainTimeout)) // fails only if it is closed
		}
		n, err := r.hub.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			used, err := r.handle(ctx, rest)
			if err != nil {
				return
			}
			rest = rest[used:]
		}
		if err != nil {
			return
		}
		if n == len(buffer) && n < usualBuffer {
			buffer = make([]byte, 2*n)
		}
	}
}

// handle takes in some of what was read, and returns how much.
func (r *replies) handle(ctx context.Context, p []byte) (int, error) {
	if r.scanner.Between() {
		r.treatment = r.treat(p[0])
	}
	if r.treatment == passOn {
		return r.pass(p)
	}
	n, done, err := r.scanner.Next(p)
	if err != nil {
		return 0, err
	}
	if r.treatment == keep {
		if len(r.kept)+n > r.server.options.Limits.Backlog {
			return 0, errTooLarge
		}
		r.kept = append(r.kept, p[:n]...)
	}
	if done {
		err = r.complete(ctx, r.kept, r.scanner.Kind())
		if r.kept = r.kept[:0]; cap(r.kept) > usualBuffer {
			r.kept = nil
		}
	}
	return n, err
}

// treat says what is to become of a reply, or of something unasked, that begins like this.
func (r *replies) treat(kind byte) treatment {
	if !r.expecting {
		if r.current, r.expecting = r.pending.take(); r.expecting && r.current.subscribes() && r.current.count == 0 {
			r.current.count = max(1, len(r.subscribed[r.current.channels])) // it ends all of them
		}
	}
	e := &r.current
	switch {
	case kind == '>', kind == '*' && !r.resp3.Load() && r.subscriptions() > 0:
		return keep
	case !r.expecting:
		return passOn
	case e.read != nil && kind != '-' && kind != '+' && !e.read.needsReply():
		return drop
	case e.read != nil, e.into != nil, e.subscribes(), r.monitoring && kind == '+':
		return keep
	default:
		return passOn
	}
}

// pass passes on some of what was read as it is: replies that are for the same, or a part of one. It returns how much that is.
func (r *replies) pass(p []byte) (n int, err error) {
	for n < len(p) {
		used, done, err := r.scanner.Next(p[n:])
		if err != nil {
			return 0, err
		}
		n += used
		if !done || !r.expecting {
			return n, r.out.put(p[:n], !done)
		}
		if r.current.count == 1 {
			err := r.out.put(p[:n], false)
			r.answered(r.scanner.Kind())
			return n, err
		}
		r.observe(r.scanner.Kind())
		r.current.count--
		if n < len(p) && r.treat(p[n]) != passOn {
			break
		}
	}
	return n, r.out.put(p[:n], false)
}

// complete takes in a reply, or something unasked, that was kept. It is empty if it was dropped.
func (r *replies) complete(ctx context.Context, p []byte, kind byte) error {
	confirms, unasked := r.classify(p, kind)
	switch {
	case confirms != "":
		return r.confirm(p, confirms)
	case unasked:
		return r.out.put(p, false)
	case r.current.into != nil:
		*r.current.into = append([]byte(nil), p...)
	default:
		if r.current.read != nil {
			var err error
			if p, err = r.answer(ctx, r.current.read, p, kind); err != nil {
				return err
			}
		}
		if err := r.out.put(p, false); err != nil {
			return err
		}
	}
	r.answered(kind)
	return nil
}

// answered strikes off what was expected, now that there is a reply of a kind.
func (r *replies) answered(kind byte) {
	r.observe(kind)
	r.current, r.expecting = expected{}, false
	r.pending.answered()
}

// observe takes in what a reply of a kind means for the connection.
func (r *replies) observe(kind byte) {
	verb := r.current.verb
	if verb == verbExec { // ends a transaction even when it is malformed
		r.queueing.Store(false)
	}
	if kind == '-' {
		return
	}
	switch verb {
	case verbHello:
		if r.current.protocol != 0 {
			r.resp3.Store(r.current.protocol == 3)
		}
	case verbMulti:
		r.queueing.Store(true)
	case verbDiscard:
		r.queueing.Store(false)
	case verbMonitor:
		r.monitoring = !r.queueing.Load()
	case verbReset:
		r.monitoring = false
		r.resp3.Store(false)
		r.queueing.Store(false)
		r.accepted.Store(false)
		clear(r.subscribed) // it ends them without a word on any
		r.server.options.Spokes.UnsubscribeAll(r.client)
		return
	}
	if !r.accepted.Load() {
		r.accepted.Store(true)
	}
}

func (r *replies) subscriptions() (count int) {
	for _, channels := range r.subscribed {
		count += len(channels)
	}
	return count
}

// classify tells what Redis said: the confirmation of which kind of subscription, something unasked, or neither.
func (r *replies) classify(p []byte, kind byte) (confirms string, unasked bool) {
	if kind == '+' && r.monitoring && len(p) > 1 && p[1] >= '0' && p[1] <= '9' {
		return "", true // the time, and what some client does
	}
	if kind != '>' && (kind != '*' || r.resp3.Load()) { // in RESP3, all that is unasked begins with '>'
		return "", false
	}
	word := ""
	if elements := resp.Elements(p); len(elements) > 0 {
		text, _ := resp.Text(elements[0])
		word = string(text)
	}
	switch word {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		if r.current.subscribes() {
			return word, false
		}
	case "message", "pmessage", "smessage":
		return "", kind == '>' || r.subscriptions() > 0
	}
	return "", kind == '>'
}

// confirm passes on that something was subscribed to, or no longer is, and sees to it that the same is true of agents: before
// the client hears of it, so that it misses nothing that is announced afterwards, and hears nothing before it follows, nor
// when it no longer does.
func (r *replies) confirm(p []byte, word string) error {
	if _, ends := subscriptionKind(word); !ends {
		if err := r.out.put(nil, true); err != nil { // what is announced from now on comes after p
			return err
		}
	}
	if elements := resp.Elements(p); len(elements) > 1 {
		if channel, some := resp.Text(elements[1]); some {
			r.follow(word, string(channel))
		}
	}
	if err := r.out.put(p, false); err != nil {
		return err
	}
	if r.current.count--; r.current.count == 0 {
		r.answered(p[0])
	}
	return nil
}

// follow has the client told what agents announce on a channel, or no longer.
func (r *replies) follow(word, channel string) {
	kind, ends := subscriptionKind(word)
	if r.subscribed[kind] == nil {
		r.subscribed[kind] = make(map[string]struct{})
	}
	if ends {
		delete(r.subscribed[kind], channel)
	} else {
		r.subscribed[kind][channel] = struct{}{}
	}
	agents := r.server.options.Spokes
	switch word {
	case "subscribe":
		agents.Subscribe(r.client, channel)
	case "unsubscribe":
		agents.Unsubscribe(r.client, channel)
	case "psubscribe":
		agents.SubscribePattern(r.client, channel)
	case "punsubscribe":
		agents.UnsubscribePattern(r.client, channel)
	}
}
