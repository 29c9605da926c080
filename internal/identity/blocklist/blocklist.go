// Package blocklist says which agents and certificates the hub refuses whatever CA issued them: how they are named in the
// ConfigMap of the blocklist, and whether a certificate is among them. Who keeps the ConfigMap, and who follows it, is elsewhere.
//
// The name of the ConfigMap, and that a key is the SHA-256 fingerprint of a certificate, is argocd-agent's. The other two kinds
// of key are this project's own. Values are notes for people.
package blocklist

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// ConfigMap is the name of the ConfigMap, in Argo CD's namespace on the hub.
const ConfigMap = "argocd-agent-tls-blocklist"

// What keys begin with that are not fingerprints. The characters of a URI may not be in a key, so its digest is.
const (
	agentPrefix = "agent."
	uriPrefix   = "uri."
)

// Agent returns the key that blocks an agent by its name, whatever certificate it comes with.
func Agent(name identity.Agent) string { return agentPrefix + string(name) }

// URI returns the key that blocks certificates with that URI, such as a SPIFFE ID, among their alternative names.
func URI(id string) string { return uriPrefix + digest([]byte(id)) }

// Certificate returns the key that blocks one certificate: its fingerprint.
func Certificate(x *x509.Certificate) string { return digest(x.Raw) }

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ParseFingerprint returns the key of a certificate by its SHA-256 fingerprint as tools print it: in hexadecimal digits of
// either case, with or without colons.
func ParseFingerprint(text string) (string, error) {
	key := strings.ToLower(strings.ReplaceAll(text, ":", ""))
	if !isDigest(key) {
		return "", fmt.Errorf("%q is no SHA-256 fingerprint: want its 64 hexadecimal digits, as openssl x509 -noout -fingerprint -sha256 prints them", text)
	}
	return key, nil
}

// ParseURI returns the key of a URI, which must have a scheme and a host, such as a SPIFFE ID.
func ParseURI(text string) (string, error) {
	if parsed, err := url.Parse(text); err != nil || parsed.Scheme == "" || parsed.Host == "" || parsed.String() != text {
		return "", fmt.Errorf("%q is no URI such as spiffe://example.org/ns/argocd/sa/berlin", text)
	}
	return URI(text), nil
}

func isDigest(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == sha256.Size
}

// List is a set of keys. The zero value blocks nobody. A List is not changed once it is made.
type List struct{ keys map[string]struct{} }

// Of returns a list of these keys, which are known to be good.
func Of(keys []string) List {
	l := List{make(map[string]struct{}, len(keys))}
	for _, key := range keys {
		l.keys[key] = struct{}{}
	}
	return l
}

// Parse reads the keys of a ConfigMap. Those that can be read are in the list even if the error says that others cannot.
func Parse(data map[string]string) (List, error) {
	var good, bad []string
	for key := range data {
		lower := strings.ToLower(key)
		name, isAgent := strings.CutPrefix(key, agentPrefix)
		sum, isURI := strings.CutPrefix(lower, uriPrefix)
		_, err := identity.ParseAgent(name)
		switch {
		case isAgent && err == nil:
			good = append(good, key)
		case isURI && isDigest(sum), isDigest(lower):
			good = append(good, lower)
		default:
			bad = append(bad, key)
		}
	}
	if len(bad) == 0 {
		return Of(good), nil
	}
	slices.Sort(bad)
	return Of(good), fmt.Errorf("keys %.300q: each must be the SHA-256 fingerprint of a certificate in 64 hexadecimal digits, agent.NAME or uri.DIGEST: "+
		"remove them, and block with: argocd-agentctl agent block", bad)
}

// With returns a list of what is in either.
func (l List) With(other List) List {
	return Of(slices.Concat(l.Keys(), other.Keys()))
}

// Keys returns the keys, sorted.
func (l List) Keys() []string { return slices.Sorted(maps.Keys(l.keys)) }

// Has reports whether a key is in the list.
func (l List) Has(key string) bool {
	_, ok := l.keys[key]
	return ok
}

// Refuses returns why a peer is refused, nil if it is not. agent is the one that it names, or is for; empty if none.
func (l List) Refuses(proof identity.Proof, agent identity.Agent) error {
	if agent != "" && l.Has(Agent(agent)) {
		return fmt.Errorf("agent %s is blocked: unblock it with: argocd-agentctl agent unblock %s", agent, agent)
	}
	if key := proof.Fingerprint; l.Has(key) {
		return fmt.Errorf("the certificate with the fingerprint %s is blocked: issue another, or unblock it by: argocd-agentctl agent unblock --fingerprint %s",
			key, key)
	}
	for _, id := range proof.URIs {
		if l.Has(URI(id)) {
			return fmt.Errorf("%q is blocked: unblock it by: argocd-agentctl agent unblock --spiffe-id %q", id, id)
		}
	}
	return nil
}
