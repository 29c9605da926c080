package agents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Entry is whom to block, or no longer.
type Entry struct {
	// Key is that of the blocklist.
	Key string
	// About says in words what it is.
	About string

	agent string // empty if it is no agent's name
}

// BlockAgent returns the entry of an agent by its name.
func BlockAgent(name string) (Entry, error) {
	agent, err := identity.ParseAgent(name)
	return Entry{blocklist.Agent(agent), "agent " + name, name}, err
}

// BlockCertificate returns the entry of a certificate by its fingerprint.
func BlockCertificate(fingerprint string) (Entry, error) {
	key, err := blocklist.ParseFingerprint(fingerprint)
	return Entry{key, "the certificate with the fingerprint " + key, ""}, err
}

// BlockURI returns the entry of all certificates with a URI, such as a SPIFFE ID.
func BlockURI(id string) (Entry, error) {
	key, err := blocklist.ParseURI(id)
	return Entry{key, "certificates with the URI " + id, ""}, err
}

// Block adds an entry to the hub's blocklist, with a note for people. Principal and kubeproxy follow the list.
func Block(ctx context.Context, hub *cluster.Client, e Entry, note string) (cluster.Result, error) {
	text := fmt.Sprintf("%s, since %s", e.About, time.Now().UTC().Format(time.RFC3339))
	if note != "" {
		text += ": " + note
	}
	changed, err := hub.ChangeConfigMap(ctx, blocklist.ConfigMap, func(data map[string]string) bool {
		if _, there := data[e.Key]; there && note == "" {
			return false
		}
		data[e.Key] = text
		return true
	})
	if err != nil {
		return cluster.Result{}, err
	}
	result := cluster.Result{Where: hub.ConfigMap(blocklist.ConfigMap), Outcome: cluster.Blocked, About: e.About}
	if !changed {
		result.Outcome = cluster.Unchanged
	}
	if e.agent != "" {
		secrets, err := hub.List(ctx, argocd.LabelAgent+"="+e.agent)
		if err != nil {
			return cluster.Result{}, err
		}
		if len(secrets) == 0 {
			result.Notes = append(result.Notes, "the hub has no cluster Secret of an agent "+e.agent+": is that its name? argocd-agentctl agent list shows all")
		}
	}
	return result, nil
}

// Unblock takes an entry from the hub's blocklist. It is an error if that has none: somebody may be blocked in another way.
func Unblock(ctx context.Context, hub *cluster.Client, e Entry) (cluster.Result, error) {
	changed, err := hub.ChangeConfigMap(ctx, blocklist.ConfigMap, func(data map[string]string) bool {
		before := len(data)
		maps.DeleteFunc(data, func(key, _ string) bool { return strings.EqualFold(key, e.Key) }) // a person may write a fingerprint in capitals
		return len(data) < before
	})
	if err != nil {
		return cluster.Result{}, err
	}
	where := hub.ConfigMap(blocklist.ConfigMap)
	if !changed {
		return cluster.Result{}, fmt.Errorf("%s: %s: it is not blocked: see what is with: %s", where, e.About,
			hub.Command("get configmap %s -n %s -o yaml", blocklist.ConfigMap, hub.Namespace))
	}
	return cluster.Result{Where: where, Outcome: cluster.Unblocked, About: e.About}, nil
}

// Blocked is an entry of the blocklist: its key, and the note that people left.
type Blocked struct {
	Key  string `json:"key"`
	Note string `json:"note,omitempty"`
}

// ListBlocked returns the hub's blocklist, sorted by key; and which keys mean nobody, since they cannot be read.
func ListBlocked(ctx context.Context, hub *cluster.Client) (all []Blocked, unreadable, err error) {
	data, err := hub.ConfigMapData(ctx, blocklist.ConfigMap)
	if err != nil {
		return nil, nil, err
	}
	all = make([]Blocked, 0, len(data))
	for _, key := range slices.Sorted(maps.Keys(data)) {
		all = append(all, Blocked{key, data[key]})
	}
	if _, unreadable = blocklist.Parse(data); unreadable != nil {
		unreadable = fmt.Errorf("%s: %w", hub.ConfigMap(blocklist.ConfigMap), unreadable)
	}
	return all, unreadable, nil
}
