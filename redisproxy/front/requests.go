package front

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
)

// errUpstream says that there is no more connection to the hub's Redis.
var errUpstream = errors.New("the hub's Redis has disconnected the client")

// requests reads a client's commands and sends them to the hub's Redis. One goroutine owns it.
type requests struct {
	*client

	scanner    *resp.CommandScanner
	buffer     []byte // what was read, of which start to end was not looked at yet
	start, end int
	large      int // bytes of the server's large that are held for the buffer

	// Of the buffer, unsentStart to unsentEnd are commands that Redis has not been sent, if there is anything in batch.
	unsentStart, unsentEnd int
	batch                  []expected
}

func newRequests(c *client) *requests {
	return &requests{client: c, scanner: resp.NewCommandScanner(c.server.limits), buffer: make([]byte, firstBuffer)}
}

// run sends the client's commands to Redis, of which one may be there already, and returns why it stopped.
func (r *requests) run(first resp.Command) error {
	if len(first.Args) > 0 {
		if err := r.handleCommand(first); err != nil {
			return err
		}
	}
	for {
		command, err := r.nextCommand()
		if err != nil || len(command.Args) == 0 {
			err = errors.Join(r.flush(), err)
		}
		switch {
		case err != nil:
		case len(command.Args) == 0:
			if err = r.makeRoom(); err == nil {
				err = r.readMore()
			}
		default:
			err = r.handleCommand(command)
		}
		if err != nil {
			return err
		}
	}
}

// nextCommand returns the next command in the buffer. It has no words when there is none, or not all of one.
func (r *requests) nextCommand() (resp.Command, error) {
	for {
		command, n, err := r.scanner.NextCommand(r.buffer[r.start:r.end])
		if err != nil || n == 0 {
			return resp.Command{}, err
		}
		r.start += n
		if len(command.Args) > 0 {
			return command, nil
		}
	}
}

// readMore reads more of what the client sends.
func (r *requests) readMore() error {
	n, err := r.conn.Read(r.buffer[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// makeRoom makes room behind what was read.
func (r *requests) makeRoom() error {
	switch {
	case r.start == r.end:
		r.start, r.end = 0, 0
		if r.large > 0 {
			r.release()
			r.buffer = make([]byte, usualBuffer)
		}
		return nil
	case r.end < len(r.buffer):
		return nil
	case r.start > 0:
		r.end = copy(r.buffer, r.buffer[r.start:r.end])
		r.start = 0
		return nil
	}
	size := 2 * len(r.buffer)
	if size > usualBuffer {
		if err := r.reserve(size); err != nil {
			return err
		}
	}
	larger := make([]byte, size)
	r.end = copy(larger, r.buffer[:r.end])
	r.buffer = larger
	return nil
}

// reserve takes a large buffer from what all clients share. One who is not authenticated gets none; Redis does the same.
func (r *requests) reserve(size int) error {
	refusal, err := r.authenticated()
	if err != nil {
		return err
	}
	if refusal != nil {
		return resp.ProtocolError("unauthenticated bulk length")
	}
	if r.server.large.Add(int64(size-r.large)) > int64(r.server.options.Limits.Large) {
		r.server.large.Add(-int64(size - r.large))
		return resp.ProtocolError("clients send too much at once, try again later")
	}
	r.large = size
	return nil
}

// release gives back what reserve took.
func (r *requests) release() {
	r.server.large.Add(-int64(r.large))
	r.large = 0
}

// handleCommand sends one command to Redis, or refuses it.
func (r *requests) handleCommand(command resp.Command) error {
	var buffer [longestName]byte
	lower := resp.Lower(buffer[:], command.Args[0])
	known := r.server.commands[string(lower)]
	if len(command.Args[0]) > longestName || known == (commandInfo{}) {
		return r.forward(command, expected{count: 1})
	}
	e, name := expected{verb: known.verb, count: 1}, string(lower)
	switch known.verb {
	case verbPlain:
		if targets, some := r.server.agentTargets(command.Args, known); some {
			return r.handleAgentCommand(command, name, known, targets)
		}
	case verbClient:
		if len(command.Args) > 1 && bytes.EqualFold(command.Args[1], []byte("reply")) {
			// Redis would not reply, and so which reply belongs to which command could not be known.
			return r.refuse("client is not served by redisproxy: connect to the hub's Redis itself")
		}
	case verbReplication:
		return r.refuse(name + " is not served by redisproxy: connect to the hub's Redis itself")
	case verbHello, verbSubscribe, verbUnsubscribe:
		// In a transaction they would take effect later, and no reply would say whether they do.
		if err := r.awaitReplies(); err != nil {
			return err
		}
		if r.queueing.Load() {
			return r.refuse(name + " is not allowed in transactions")
		}
		if known.verb == verbHello && len(command.Args) > 1 {
			e.protocol, _ = strconv.Atoi(string(command.Args[1]))
		} else if known.verb != verbHello {
			e.count = len(command.Args) - 1
			e.channels, _ = subscriptionKind(name)
		}
	case verbReset: // later commands of who is no longer authenticated must cause nothing on a spoke
		return errors.Join(r.forward(command, e), r.awaitReplies())
	}
	return r.forward(command, e)
}

// handleAgentCommand handles a command about agents' keys, maybe among others. It goes to Redis too, which so decides whether the
// client may give it, and when: a transaction has it answered by Redis alone.
func (r *requests) handleAgentCommand(command resp.Command, name string, known commandInfo, targets []spokes.Target) error {
	if !known.reads {
		refusal, err := r.authenticated()
		switch {
		case err != nil:
			return err
		case refusal != nil:
			r.server.metrics.denied.Inc()
			return r.out.appendReply(refusal, false)
		}
		r.server.metrics.readOnly.Inc()
		return r.refuse(fmt.Sprintf("%s: %s belongs to an agent, and can only be read through redisproxy", name, firstAgentKey(targets)))
	}
	read := &agentRead{name: name, targets: targets}
	if r.accepted.Load() { // unauthenticated clients must cause nothing on a spoke
		read.ask(r.server.options.Spokes)
	}
	e := expected{count: 1, read: read}
	if name == "exists" {
		return r.handleExists(command, targets, e)
	}
	return r.forward(command, e)
}

// handleExists handles an EXISTS. Redis is not to count what it has under agents' keys, and so is only asked for the others; but
// first, by the whole command, whether the client may.
func (r *requests) handleExists(command resp.Command, targets []spokes.Target, e expected) error {
	hubs := withoutAgentKeys(command.Args, targets)
	if hubs == nil {
		return r.forward(command, e)
	}
	if err := r.awaitReplies(); err != nil {
		return err
	}
	if !r.queueing.Load() { // what a transaction has is Redis' alone
		var verdict []byte
		if err := errors.Join(r.send(command.Raw, expected{count: 1, into: &verdict}), r.awaitReplies()); err != nil {
			return err
		}
		if verdict[0] == '-' {
			r.server.metrics.denied.Inc()
			return r.out.appendReply(verdict, false)
		}
	}
	e.read.hubCounts = true
	return r.send(hubs, e)
}

// forward sends a command to Redis, with the next flush.
func (r *requests) forward(command resp.Command, e expected) error {
	if command.Inline { // the scanner uses its memory again
		return r.send(command.Raw, e)
	}
	begin := r.start - len(command.Raw)
	if len(r.batch) > 0 && (begin != r.unsentEnd || len(r.batch) == maxPending) {
		if err := r.flush(); err != nil {
			return err
		}
	}
	if len(r.batch) == 0 {
		r.unsentStart = begin
	}
	r.unsentEnd = r.start
	if n := len(r.batch); n > 0 && e.plain() && r.batch[n-1].plain() {
		r.batch[n-1].count++
	} else {
		r.batch = append(r.batch, e)
	}
	return nil
}

// send sends a command to Redis that is not in the buffer.
func (r *requests) send(raw []byte, e expected) error {
	if err := r.flush(); err != nil {
		return err
	}
	return r.sendBatch(raw, []expected{e})
}

// flush sends to Redis the commands of the buffer that were forwarded since the last flush.
func (r *requests) flush() error {
	if len(r.batch) == 0 {
		return nil
	}
	err := r.sendBatch(r.buffer[r.unsentStart:r.unsentEnd], r.batch)
	clear(r.batch)
	r.batch = r.batch[:0]
	return err
}

// sendBatch sends commands to Redis, and notes what is to be done with the replies.
func (r *requests) sendBatch(raw []byte, batch []expected) error {
	for _, e := range batch {
		if e.read == nil {
			r.server.metrics.passed.Add(float64(e.count))
		}
	}
	if !r.pending.add(batch) {
		return errUpstream
	}
	if _, err := r.hub.Write(raw); err != nil {
		return errUpstream
	}
	return nil
}

// awaitReplies waits until Redis has answered all that it was sent.
func (r *requests) awaitReplies() error {
	if err := r.flush(); err != nil {
		return err
	}
	if !r.pending.wait() {
		return errUpstream
	}
	return nil
}

// authenticated waits for the replies to earlier commands, and returns nil if Redis has authenticated the client, or else Redis'
// refusal.
func (r *requests) authenticated() (refusal []byte, err error) {
	if err := r.awaitReplies(); err != nil || r.accepted.Load() {
		return nil, err
	}
	var reply []byte
	if err := errors.Join(r.send(resp.AppendCommand(nil, "PING"), expected{count: 1, into: &reply}), r.awaitReplies()); err != nil {
		return nil, err
	}
	// Who may not PING is authenticated.
	if reply[0] == '-' && !bytes.HasPrefix(reply, []byte("-NOPERM")) {
		return reply, nil
	}
	return nil, nil
}

// refuse replies to a command with an error. In a transaction the error has to be Redis' own, so that EXEC fails: Redis gets
// a command that it does not know.
func (r *requests) refuse(text string) error {
	if err := r.awaitReplies(); err != nil {
		return err
	}
	if r.queueing.Load() {
		return r.send(resp.AppendCommand(nil, text), expected{count: 1})
	}
	return r.out.appendReply(redcon.AppendError(nil, "ERR "+text), false)
}

// agentTargets returns which keys of a command agents own, and whether there are some. The hub's own Argo CD writes the state of
// clusters, which stays allowed; it reads the agent's.
func (s *Server) agentTargets(args [][]byte, known commandInfo) (targets []spokes.Target, some bool) {
	found, stride := known.keyArgs(args)
	maybe := false // a quick look first
	for i := 0; i < len(found) && !maybe; i += stride {
		maybe = s.options.Space.Maybe(found[i])
	}
	for i := 0; maybe && i < len(found); i += stride {
		key := s.options.Space.Key(found[i])
		var target spokes.Target
		if key.Kind != keys.None && (known.reads || key.Kind != keys.Cluster) {
			target, _ = s.options.Spokes.Find(key)
		}
		some = some || target.Agent != ""
		targets = append(targets, target)
	}
	return targets, some
}
