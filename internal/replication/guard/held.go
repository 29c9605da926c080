package guard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// HeldConfigMap is the name of the ConfigMap that shows the deletions which the guard of the hub holds, one key for each agent and
// facet, for argocd-agentctl. Nobody reads it back: what is held is found again when an agent connects.
const HeldConfigMap = "argocd-agent-held-deletions"

// maxHeldBytes is how much the lists of objects in that ConfigMap may take together. A ConfigMap has at most 1 MiB.
const maxHeldBytes = 512 << 10

// Held are deletions of one facet of one agent that wait for an operator.
type Held struct {
	Agent string         `json:"agent"`
	Facet converge.Facet `json:"facet"`
	// Token confirms them.
	Token string `json:"token"`
	// Deletions is how many objects would be deleted, of Total that the agent has. TakenAlong is how many of them went with their
	// namespace or the definition of their kind on the hub.
	Deletions  int `json:"deletions"`
	Total      int `json:"total"`
	TakenAlong int `json:"takenAlong,omitempty"`
	// Objects are the first of them by name.
	Objects []string `json:"objects,omitempty"`
}

// Key is the key of the ConfigMap.
func (h Held) Key() string { return target{h.Agent, h.Facet}.String() }

// Summary says what is held, and why.
func (h Held) Summary() string {
	return summary(converge.PausedDeletions{Deletions: h.Deletions, Total: h.Total, TakenAlong: h.TakenAlong})
}

// ReadHeld returns what the data of the ConfigMap shows, sorted by agent and facet. Keys that are not of this form are passed over.
func ReadHeld(data map[string]string) []Held {
	var all []Held
	for key, text := range data {
		var h Held
		if json.Unmarshal([]byte(text), &h) == nil && h.Key() == key {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b Held) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), strings.Compare(string(a.Facet), string(b.Facet)))
	})
	return all
}

// summary says what the guard does, and why.
func summary(p converge.PausedDeletions) string {
	if p.TakenAlong > 0 {
		return fmt.Sprintf("The deletion of a namespace or CustomResourceDefinition would delete %d of %d objects; deletions paused", p.Deletions, p.Total)
	}
	return fmt.Sprintf("Resync would delete %d of %d objects; deletions paused", p.Deletions, p.Total)
}

// longestKey is how long a key may be that is shown: namespace and name, with a slash.
const longestKey = 63 + 1 + 253

// shown returns at most so many keys as they may be shown. An agent may report keys that are no names.
func shown(keys []converge.Key, most int) []string {
	var out []string
	for _, key := range keys[:min(len(keys), most)] {
		text := string(key)
		if len(text) > longestKey {
			text = text[:longestKey]
		}
		if strings.ContainsFunc(text, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-./", r)
		}) {
			text = strconv.QuoteToASCII(text)
		}
		out = append(out, text)
	}
	return out
}

// listed returns the first keys as one text, and how many more there are.
func listed(p converge.PausedDeletions, most int) string {
	keys := shown(p.Keys, most)
	text := strings.Join(keys, ", ")
	if more := p.Deletions - len(keys); more > 0 && len(keys) > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// data returns the data of the ConfigMap for those of these keys of which deletions are held, the same for the same. The lists of objects
// take no more than so many bytes.
func data(paused map[target]converge.PausedDeletions, keys map[string]string, left int) map[string]string {
	out := make(map[string]string, len(keys))
	for _, n := range slices.SortedFunc(maps.Keys(paused), func(a, b target) int { return strings.Compare(a.String(), b.String()) }) {
		if _, wanted := keys[n.String()]; !wanted {
			continue
		}
		p := paused[n]
		h := Held{Agent: n.agent, Facet: n.facet, Token: p.Token, Deletions: p.Deletions, Total: p.Total, TakenAlong: p.TakenAlong}
		h.Objects = shown(p.Keys, len(p.Keys))
		text, err := json.Marshal(h)
		if err == nil && len(text) > left {
			h.Objects = nil
			text, err = json.Marshal(h)
		}
		if err == nil {
			out[n.String()] = string(text)
			left -= len(text)
		}
	}
	return out
}
