package argocd

import (
	"encoding/json"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

func encode(c Content) encoded {
	payload, version, err := c.Encode()
	return encoded{payload, version, err}
}

// EncodedBy returns what a rule leaves of the content in its JSON encoding, and the version of that. It is encoded once, whoever
// asks: a record is always asked by the same rule. What the rule refuses is sent as it is, so that the other side refuses it, and
// those hear of it who can mend it.
func (r *Record) EncodedBy(rule Rule) (payload []byte, version converge.Version, ok bool) {
	r.ruled.once.Do(func() {
		content, err := rule(r.content)
		if err != nil {
			content = r.content
		}
		r.ruled.encoded = encode(content)
	})
	return r.ruled.payload, r.ruled.version, r.ruled.err == nil
}

// IsLeftBy reports whether a rule leaves the content as it is. It is found out once, whoever asks: a record is always asked by the same
// rule, that of the one facet and peer whose replica object it may be.
func (r *Record) IsLeftBy(rule Rule) bool {
	r.left.once.Do(func() {
		content, err := rule(r.content)
		if err != nil {
			return
		}
		have, want := r.encoded(), encode(content)
		r.left.same = have.err == nil && want.err == nil && have.version == want.version
	})
	return r.left.same
}

// ruled is what a rule leaves of a record's content, made when it is first asked for.
type ruled struct {
	once sync.Once
	encoded
}

// maxVariants is how many variants are kept of a project. More are encoded again.
const maxVariants = 100

// variants are a project's contents as agents have them. Most agents have the same, since each has its own cluster by the same
// name.
type variants struct {
	mu     sync.Mutex
	byPart map[string]encoded // by what differs from agent to agent. Guarded by mu
}

// EncodedForAgent is ForAgent, encoded once for all agents that have the same.
func (r *Record) EncodedForAgent(to Recipient) (payload []byte, version converge.Version, ok bool) {
	spec, ok := r.specFor(to)
	if !ok {
		return nil, converge.Version{}, false
	}
	_, anywhere := spec["sourceNamespaces"]
	part, err := json.Marshal([]any{spec["destinations"], spec["syncWindows"], spec["destinationServiceAccounts"], anywhere})
	if err != nil {
		return nil, converge.Version{}, false
	}
	r.variants.mu.Lock()
	defer r.variants.mu.Unlock()
	e, made := r.variants.byPart[string(part)]
	if !made {
		content, ok := r.withSpec(spec)
		if !ok {
			return nil, converge.Version{}, false
		}
		if e = encode(content); r.variants.byPart == nil || len(r.variants.byPart) == maxVariants {
			r.variants.byPart = make(map[string]encoded)
		}
		r.variants.byPart[string(part)] = e
	}
	return e.payload, e.version, e.err == nil
}
