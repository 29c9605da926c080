package front

import (
	"context"
	"errors"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// errTooLarge ends a connection.
var errTooLarge = errors.New("a reply of the hub's Redis is larger than may be kept")

// treatment is what is done with a reply, or with a push.
type treatment uint8

const (
	passOn treatment = iota // as it comes, in pieces
	keep                    // until it is complete, to be looked at
	drop
)

// replies reads the replies of the hub's Redis to a client, and passes them on. One goroutine owns it.
//
// Subscriptions go to the hub's Redis, also those to agents' channels. So Redis decides whether the client may subscribe, counts
// and confirms, and what it confirms is then subscribed to at the agents too. Nobody publishes on those channels at the hub as long
// as the hub has no such application of its own.
type replies struct {
	*client

	scanner    resp.ReplyScanner
	current    expected // what the next reply is for
	expecting  bool     // there is a current
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
			_ = r.hub.SetReadDeadline(time.Now().Add(r.server.options.DrainTimeout)) // fails only if it is closed
		}
		n, err := r.hub.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			used, err := r.handleBytes(ctx, rest)
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

// handleBytes handles some of what was read, and returns how much.
func (r *replies) handleBytes(ctx context.Context, p []byte) (int, error) {
	if r.scanner.BetweenReplies() {
		r.treatment = r.treatmentOf(p[0])
	}
	if r.treatment == passOn {
		return r.passReplies(p)
	}
	n, done, err := r.scanner.NextReply(p)
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
		err = r.handleFrame(ctx, r.kept, r.scanner.Kind())
		if r.kept = r.kept[:0]; cap(r.kept) > usualBuffer {
			r.kept = nil
		}
	}
	return n, err
}

// treatmentOf returns what is to be done with a reply, or a push, of a kind.
func (r *replies) treatmentOf(kind byte) treatment {
	if !r.expecting {
		if r.current, r.expecting = r.pending.take(); r.expecting && r.current.subscribes() && r.current.count == 0 {
			r.current.count = max(1, len(r.subscribed[r.current.channels])) // UNSUBSCRIBE without channels confirms each
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

// passReplies passes on some of what was read as it is: replies to one entry of pending, or a part of one. It returns how much.
func (r *replies) passReplies(p []byte) (n int, err error) {
	for n < len(p) {
		used, done, err := r.scanner.NextReply(p[n:])
		if err != nil {
			return 0, err
		}
		n += used
		if !done || !r.expecting {
			return n, r.out.appendReply(p[:n], !done)
		}
		if r.current.count == 1 {
			err := r.out.appendReply(p[:n], false)
			r.finishExpected(r.scanner.Kind())
			return n, err
		}
		r.updateState(r.scanner.Kind())
		r.current.count--
		if n < len(p) && r.treatmentOf(p[n]) != passOn {
			break
		}
	}
	return n, r.out.appendReply(p[:n], false)
}

// handleFrame handles a complete reply, or push. It is empty if it was dropped.
func (r *replies) handleFrame(ctx context.Context, p []byte, kind byte) error {
	confirms, unasked := r.classify(p, kind)
	switch {
	case confirms != "":
		return r.confirm(p, confirms)
	case unasked:
		return r.out.appendReply(p, false)
	case r.current.into != nil:
		*r.current.into = append([]byte(nil), p...)
	case r.current.read != nil:
		if err := r.reply(ctx, r.current.read, p, kind); err != nil {
			return err
		}
	default:
		if err := r.out.appendReply(p, false); err != nil {
			return err
		}
	}
	r.finishExpected(kind)
	return nil
}

// finishExpected strikes off what was expected, after its last reply.
func (r *replies) finishExpected(kind byte) {
	r.updateState(kind)
	r.current, r.expecting = expected{}, false
	r.pending.answered()
}

// updateState updates what is known of the connection after a reply of a kind.
func (r *replies) updateState(kind byte) {
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
		r.stranger.Reset(r.server.options.AuthTimeout)
		clear(r.subscribed) // RESET ends them without confirmations
		r.server.options.Spokes.UnsubscribeAll(r.client)
		return
	}
	r.accept()
}

// accept notes that Redis has authenticated the client.
func (r *replies) accept() {
	if !r.accepted.Swap(true) {
		r.server.keepPlace(r.client)
	}
}

func (r *replies) subscriptions() (count int) {
	for _, channels := range r.subscribed {
		count += len(channels)
	}
	return count
}

// classify tells what a frame is: the confirmation of which command about subscriptions, unasked, or a reply.
func (r *replies) classify(p []byte, kind byte) (confirms string, unasked bool) {
	if kind == '+' && r.monitoring && len(p) > 1 && p[1] >= '0' && p[1] <= '9' {
		return "", true // MONITOR: a time, and a command
	}
	if kind != '>' && (kind != '*' || r.resp3.Load()) { // in RESP3, all pushes begin with '>'
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

// confirm passes on the confirmation of a subscription, or of its end, after doing the same at the agents. So the client misses
// no message after the confirmation, and gets none before it subscribes nor after it has unsubscribed.
func (r *replies) confirm(p []byte, word string) error {
	if _, ends := subscriptionKind(word); !ends {
		if err := r.out.appendReply(nil, true); err != nil { // messages from now on come after p
			return err
		}
	}
	if elements := resp.Elements(p); len(elements) > 1 {
		if channel, some := resp.Text(elements[1]); some {
			r.follow(word, string(channel))
		}
	}
	if err := r.out.appendReply(p, false); err != nil {
		return err
	}
	if r.current.count--; r.current.count == 0 {
		r.finishExpected(p[0])
	}
	return nil
}

// follow subscribes the client to a channel or pattern of agents', or ends that.
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
