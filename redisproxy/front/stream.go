package front

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// stream is what a client has that is told things unasked: by the hub's Redis, and of agents.
//
// All that it subscribes to, it subscribes to at the hub's Redis, also what belongs to agents: so Redis says whether it may,
// counts, and confirms, and what it confirms is what we then follow at the agents too. Nobody speaks on those channels at the
// hub as long as the hub has no such application of its own.
type stream struct {
	session *session
	out     *outbox
	three   atomic.Bool // it speaks RESP3
	running sync.WaitGroup

	mu         sync.Mutex
	settled    sync.Cond
	slots      []slot           // what Redis has been asked and not answered. Guarded by mu
	subscribed map[string]names // by the word that confirms a subscription. Guarded by mu
	kind       byte             // of the last reply. Guarded by mu
	failure    error            // why nothing will be answered any more. Guarded by mu
}

type names map[string]struct{}

// slot is a reply that Redis owes.
type slot struct {
	confirmations int     // that it consists of; 0: it is an ordinary one
	into          *[]byte // where it goes; nil: to the client
	resets        bool    // it is that of a RESET, which ends all subscriptions without a word on any
}

// newStream begins to tell the client what its connection to Redis brings. rest is what was read of that already.
func newStream(s *session, rest []byte) *stream {
	t := &stream{session: s, out: newOutbox(s.conn, s.server.options.Limits.Backlog), subscribed: make(map[string]names)}
	t.settled.L = &t.mu
	t.three.Store(s.identity.Protocol == 3)
	t.running.Go(t.out.write)
	t.running.Go(func() { t.follow(rest) })
	return t
}

// drain lets the client read what is left, for a moment.
func (t *stream) drain() {
	t.out.end()
	_ = t.session.own.Close()
	t.running.Wait()
}

// close ends everything. The connections are closed.
func (t *stream) close() {
	t.out.fail()
	t.running.Wait()
	t.session.server.options.Spokes.Leave(t)
}

// pass has Redis answer commands, and returns what kind of reply the last one was.
func (t *stream) pass(raw []byte, count int) (byte, error) {
	return t.exchange(raw, make([]slot, count)...)
}

// reset has Redis answer a RESET, and returns what kind of reply that was.
func (t *stream) reset(raw []byte) (byte, error) { return t.exchange(raw, slot{resets: true}) }

// fetch has Redis answer a command, and returns the reply.
func (t *stream) fetch(raw []byte) ([]byte, error) {
	var reply []byte
	_, err := t.exchange(raw, slot{into: &reply})
	return reply, err
}

// subscribe has Redis subscribe the client to something, or to nothing more of a kind.
func (t *stream) subscribe(one *step) error {
	confirmations := len(one.args) - 1
	if kind, ends := ended(one.name); ends && confirmations == 0 {
		t.mu.Lock()
		confirmations = max(1, len(t.subscribed[kind]))
		t.mu.Unlock()
	}
	_, err := t.exchange(one.raw, slot{confirmations: confirmations})
	return err
}

// exchange sends commands and waits until all that is owed has come.
func (t *stream) exchange(raw []byte, owed ...slot) (byte, error) {
	t.mu.Lock()
	t.slots = append(t.slots, owed...)
	t.mu.Unlock()
	if _, err := t.session.own.Write(raw); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.slots) > 0 && t.failure == nil {
		t.settled.Wait()
	}
	return t.kind, t.failure
}

// listening reports whether the client may only change its subscriptions.
func (t *stream) listening() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.three.Load() && t.subscriptions() > 0
}

func (t *stream) subscriptions() (count int) {
	for _, all := range t.subscribed {
		count += len(all)
	}
	return count
}

// follow hands on what Redis says, until that ends, and then disconnects the client.
func (t *stream) follow(rest []byte) {
	err := t.frames(rest)
	t.mu.Lock()
	t.failure = err
	t.settled.Broadcast()
	t.mu.Unlock()
	if !t.out.closing() {
		_ = t.session.conn.Close()
	}
}

func (t *stream) frames(buffer []byte) error {
	var replies resp.Replies
	seen := 0 // of the buffer
	for {
		for seen < len(buffer) {
			n, done, err := replies.Next(buffer[seen:])
			if err != nil {
				return err
			}
			seen += n
			if !done {
				break
			}
			if err := t.frame(buffer[:seen], replies.Kind()); err != nil {
				return err
			}
			buffer, seen = buffer[seen:], 0
		}
		if len(buffer) > t.session.server.options.Limits.Backlog {
			return errors.New("the hub's Redis said more at once than may be kept")
		}
		if cap(buffer)-len(buffer) < firstBuffer {
			buffer = append(make([]byte, 0, 2*len(buffer)+2*firstBuffer), buffer...)
		}
		n, err := t.session.own.Read(buffer[len(buffer):cap(buffer)])
		if err != nil {
			return err
		}
		buffer = buffer[:len(buffer)+n]
	}
}

// frame hands on one reply or message.
func (t *stream) frame(p []byte, kind byte) error {
	confirms, unasked := t.sort(p, kind)
	if confirms != "" {
		return t.confirm(p, confirms)
	}
	if unasked {
		return t.out.put(p)
	}
	t.mu.Lock()
	var owed slot
	asked := len(t.slots) > 0
	if asked {
		owed = t.slots[0]
	}
	t.mu.Unlock()
	if owed.resets && kind == '+' {
		t.forget()
	}
	if owed.into != nil {
		*owed.into = append([]byte(nil), p...)
	} else if err := t.out.put(p); err != nil {
		return err
	}
	if asked {
		t.settle(kind)
	}
	return nil
}

// forget has the client follow nothing any more.
func (t *stream) forget() {
	t.mu.Lock()
	clear(t.subscribed)
	t.mu.Unlock()
	t.session.server.options.Spokes.Leave(t)
}

// settle strikes out what has been owed longest.
func (t *stream) settle(kind byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots, t.kind = t.slots[1:], kind
	if len(t.slots) == 0 {
		t.settled.Broadcast()
	}
}

// sort tells what a value from Redis is: the confirmation of which kind of subscription, something unasked, or neither.
func (t *stream) sort(p []byte, kind byte) (confirms string, unasked bool) {
	if kind != '>' && kind != '*' {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	awaited := len(t.slots) > 0 && t.slots[0].confirmations > 0
	if kind == '*' && (t.three.Load() || !awaited && t.subscriptions() == 0) {
		return "", false // in RESP3, all that is unasked begins with '>'
	}
	elements := resp.Elements(p)
	if len(elements) == 0 {
		return "", kind == '>'
	}
	word, _ := resp.Text(elements[0])
	switch string(word) {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		if awaited {
			return string(word), false
		}
		return "", kind == '>'
	case "message", "pmessage", "smessage":
		return "", true
	default:
		return "", kind == '>'
	}
}

// confirm hands on that something was subscribed to, or no longer is, and sees to it that the same is true of agents: before
// the client hears of it, so that it misses nothing that is announced afterwards, and hears nothing before it follows, nor
// when it no longer does.
func (t *stream) confirm(p []byte, word string) error {
	if _, ends := ended(word); !ends {
		t.out.hold()
	}
	if elements := resp.Elements(p); len(elements) > 1 {
		if channel, some := resp.Text(elements[1]); some {
			t.change(word, string(channel))
		}
	}
	if err := t.out.put(p); err != nil {
		return err
	}
	if !t.out.release() {
		t.overrun()
	}
	t.mu.Lock()
	t.slots[0].confirmations--
	over := t.slots[0].confirmations == 0
	t.mu.Unlock()
	if over {
		t.settle(p[0])
	}
	return nil
}

// ended returns the word by which something is subscribed to, and whether this one ends that.
func ended(word string) (kind string, ends bool) {
	before, after, ends := strings.Cut(word, "un")
	return before + after, ends
}

func (t *stream) change(word, channel string) {
	kind, ends := ended(word)
	t.mu.Lock()
	if t.subscribed[kind] == nil {
		t.subscribed[kind] = make(names)
	}
	if ends {
		delete(t.subscribed[kind], channel)
	} else {
		t.subscribed[kind][channel] = struct{}{}
	}
	t.mu.Unlock()
	agents := t.session.server.options.Spokes
	switch word {
	case "subscribe":
		agents.Subscribe(t, channel)
	case "unsubscribe":
		agents.Unsubscribe(t, channel)
	case "psubscribe":
		agents.SubscribePattern(t, channel)
	case "punsubscribe":
		agents.UnsubscribePattern(t, channel)
	}
}

// Message tells the client what an agent announced. A client that does not read is disconnected, and nobody waits for it.
func (t *stream) Message(pattern, channel string, payload []byte) {
	begin := byte('*')
	if t.three.Load() {
		begin = '>'
	}
	frame := []byte{begin}
	if pattern == "" {
		frame = append(frame, "3\r\n$7\r\nmessage\r\n"...)
	} else {
		frame = redcon.AppendBulkString(append(frame, "4\r\n$8\r\npmessage\r\n"...), pattern)
	}
	frame = redcon.AppendBulk(redcon.AppendBulkString(frame, channel), payload)
	if !t.out.push(frame) {
		t.overrun()
	}
}

// overrun disconnects a client that does not read.
func (t *stream) overrun() {
	t.session.server.metrics.overrun.Inc()
	_ = t.session.conn.Close()
}
