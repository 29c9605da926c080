package front

import (
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
)

// What becomes of a step.
type destination uint8

const (
	toHub     destination = iota // commands of which Redis' replies are all that matters
	toHubSeen                    // one command whose reply decides about what follows
	toHubTold                    // a command by which Redis' messages are asked for, or no longer
	toAgents                     // a command about at least one agent's key
	toNobody                     // a command that is answered here
)

// maxSteps bounds what is looked at ahead of the first reply.
const maxSteps = 256

// step is one command of a client, or several that go to the hub's Redis together.
type step struct {
	kind   destination
	raw    []byte
	count  int
	shares bool // all of them
	waits  bool // one of them may wait, for anything, as long as it likes

	verb     verb
	name     string
	args     [][]byte
	reply    []byte          // of toNobody
	farewell bool            // the client is to be disconnected after it
	targets  []spokes.Target // of toAgents, one per key; those without an agent are the hub's
	asked    []spokes.Question
}

// collect gathers the complete commands that the client has sent, and reports whether there are any. Its error is what is
// wrong with what follows them.
func (s *session) collect() (found bool, err error) {
	clear(s.steps)
	s.steps, s.words = s.steps[:0], s.words[:0]
	for len(s.steps) < maxSteps {
		cmd, n, err := s.scanner.Next(s.in[s.start:s.end])
		if err != nil {
			return len(s.steps) > 0, err
		}
		if n == 0 {
			break
		}
		begin := s.start
		s.start += n
		if len(cmd.Args) == 0 {
			continue
		}
		if s.add(cmd, begin) {
			break
		}
	}
	return len(s.steps) > 0, nil
}

// add sorts one command in, and reports whether what follows it has to wait until it was answered.
func (s *session) add(cmd resp.Command, begin int) (last bool) {
	var buffer [longest]byte
	name := resp.Lower(buffer[:], cmd.Args[0])
	known, found := s.server.commands[string(name)]
	if !found || len(cmd.Args[0]) > longest {
		s.pass(cmd, begin, false)
		s.steps[len(s.steps)-1].waits = true
		return false
	}
	if known.verb == plain && (known.keys == nowhere || s.queueing || !s.server.mayBelong(cmd.Args, known.keys)) {
		s.pass(cmd, begin, known.shares)
		return false
	}
	return s.special(cmd, begin, string(name), known)
}

// pass adds a command that goes to the hub's Redis as it is.
func (s *session) pass(cmd resp.Command, begin int, shares bool) {
	if cmd.Inline {
		s.steps = append(s.steps, step{kind: toHub, raw: append([]byte(nil), cmd.Raw...), count: 1, shares: shares})
		return
	}
	if n := len(s.steps); n > 0 {
		previous := &s.steps[n-1]
		end := len(previous.raw)
		if previous.kind == toHub && begin >= end && &s.in[begin-end] == &previous.raw[0] {
			previous.raw = s.in[begin-end : begin+len(cmd.Raw)]
			previous.count++
			previous.shares = previous.shares && shares
			return
		}
	}
	s.steps = append(s.steps, step{kind: toHub, raw: cmd.Raw, count: 1, shares: shares})
}

// special adds a command that more is to be known of.
func (s *session) special(cmd resp.Command, begin int, name string, known command) (last bool) {
	v := known.verb
	if v == client && len(cmd.Args) > 1 {
		var buffer [longest + 8]byte
		v = ofClient(string(resp.Lower(buffer[:], cmd.Args[1])))
	}
	switch v {
	case plain:
		wrong := known.reads && known.keys == first && len(cmd.Args) != 2 // as Redis says itself
		if targets, some := s.server.targets(cmd.Args, known); some && !wrong {
			s.agents(cmd, name, known, targets)
			return false
		}
		s.pass(cmd, begin, known.shares)
		return false
	case client:
		s.pass(cmd, begin, false)
		return false
	case unqueue, watch, unwatch:
		if name != "discard" || len(cmd.Args) == 1 { // EXEC ends a transaction even when it is malformed
			s.note(v)
		}
		s.pass(cmd, begin, false)
		return false
	case refuse:
		s.refuse(name + " is not served by redisproxy: connect to the hub's Redis itself")
		return false
	case quit:
		s.steps = append(s.steps, step{kind: toNobody, reply: []byte("+OK\r\n"), farewell: true})
		return true
	}
	if s.queueing { // it will take effect later, and it is not seen whether it does
		if name == "auth" || name == "select" {
			s.sticky = true
			s.pass(cmd, begin, false)
			return false
		}
		if name != "reset" && v != queue { // after a HELLO, we would not know how to speak of agents
			s.refuse(name + " is not allowed in transactions")
			return false
		}
	}
	one := step{kind: toHubSeen, raw: append([]byte(nil), cmd.Raw...), count: 1, verb: v, name: name, args: s.keep(cmd.Args)}
	if v == subscribe || v == unsubscribe {
		one.kind = toHubTold
	}
	s.steps = append(s.steps, one)
	return true
}

// note keeps track of transactions: Redis' answer to MULTI begins one. What it says to the rest does not matter: one who
// watches nothing after all has a connection of its own without need, and nothing else.
func (s *session) note(v verb) {
	switch v {
	case watch:
		s.watching = true
	case unqueue:
		s.queueing, s.watching = false, false
	case unwatch:
		s.watching = s.watching && s.queueing
	}
}

// refuse adds an error. In a transaction it has to be Redis' own, so that EXEC does not do the rest: a command that Redis
// does not know.
func (s *session) refuse(text string) {
	if s.queueing {
		s.steps = append(s.steps, step{kind: toHub, raw: resp.AppendCommand(nil, text), count: 1})
		return
	}
	s.steps = append(s.steps, step{kind: toNobody, reply: append(append([]byte("-ERR "), text...), "\r\n"...)})
}

// agents adds a command about agents' keys.
func (s *session) agents(cmd resp.Command, name string, known command, targets []spokes.Target) {
	s.steps = append(s.steps, step{kind: toAgents, name: name, args: s.keep(cmd.Args), targets: targets, shares: known.reads, count: 1})
}

// keep returns the arguments in a place that the next command does not overwrite. They still point into the buffer, or
// are an inline command's own.
func (s *session) keep(args [][]byte) [][]byte {
	begin := len(s.words)
	s.words = append(s.words, args...)
	return s.words[begin:len(s.words):len(s.words)]
}

// keyArgs are the arguments that are keys, and how far they are apart.
func keyArgs(args [][]byte, at place) (found [][]byte, stride int) {
	switch {
	case at == nowhere || len(args) < 2:
		return nil, 1
	case at == first:
		return args[1:2], 1
	case at == pairs:
		return args[1:], 2
	default:
		return args[1:], 1
	}
}

// mayBelong is a quick look at whether a key may be an agent's.
func (s *Server) mayBelong(args [][]byte, at place) bool {
	found, stride := keyArgs(args, at)
	for i := 0; i < len(found); i += stride {
		if s.options.Space.Maybe(found[i]) {
			return true
		}
	}
	return false
}

// targets says whose the keys are, and whether some are an agent's. Writing the state of a cluster is left to the hub: its
// Argo CD does that, and reads what the agent says.
func (s *Server) targets(args [][]byte, known command) (targets []spokes.Target, some bool) {
	found, stride := keyArgs(args, known.keys)
	for i := 0; i < len(found); i += stride {
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
