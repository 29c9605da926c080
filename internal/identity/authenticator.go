package identity

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// DefaultAuth is the value of --auth when nothing else is set: the agent's name is its certificate's common name.
const DefaultAuth = "mtls:" + wholeName

// wholeName is the expression that stands for the common name. As an expression on the subject's text it would also find
// a common name in the text of another attribute, such as an organisation called "CN=agent-a". So it is not taken for one:
// the common name itself is read.
const wholeName = "CN=([^,]+)"

// examples ends every error about a value of --auth.
const examples = `use for example "mtls:subject:CN=([^,]+)" or "mtls:uri:^spiffe://example\.org/ns/argocd/sa/([^/]+)$"`

// Options configures an Authenticator.
type Options struct {
	// Auth is one of these, where the regular expression's first group is the agent's name:
	//
	//	mtls:subject:<regexp>  the subject of the client certificate, such as "CN=agent-a,O=example"
	//	mtls:uri:<regexp>      the one URI of the client certificate, such as a SPIFFE ID
	//	mtls:<regexp>          an older spelling of mtls:subject
	//
	// The regular expression need not match the whole, but it must match in one place only. On a subject it should begin
	// with ^ or name what is before it: any attribute can have a text that looks like another one. Only CN=([^,]+) is
	// safe as it is: it stands for the common name, whatever else there is.
	Auth string
	// Reserved are names that no agent may have, such as the hub's own namespace.
	Reserved []string
	// Components are the hub's own components: by their certificates' URIs if Auth reads URIs, and else by their common names.
	// No agent may have such a name.
	Components Components
}

// Authenticator reads which agent is the peer of a connection. It is safe for concurrent use.
type Authenticator struct {
	pattern    *regexp.Regexp
	field      field
	reserved   []string
	components Components
	component  field // what names a component
}

// field is what of a certificate names the agent.
type field struct {
	name string // as logs and errors call it
	read func(*x509.Certificate) (string, error)
	uri  bool
}

// New makes an Authenticator, or says what a right value looks like.
func New(options Options) (*Authenticator, error) {
	method, rest, _ := strings.Cut(options.Auth, ":")
	switch method {
	case "mtls":
	case "header", "userpass":
		return nil, fmt.Errorf("auth %q: method %q is not available: %s", options.Auth, method, examples)
	default:
		return nil, fmt.Errorf("auth %q: it must begin with mtls: %s", options.Auth, examples)
	}
	source := field{name: "subject", read: subject}
	if expression, ok := strings.CutPrefix(rest, "subject:"); ok {
		rest = expression
	} else if expression, ok := strings.CutPrefix(rest, "uri:"); ok {
		rest, source = expression, field{name: "URI", read: URI, uri: true}
	}
	component := field{name: "common name", read: CommonName}
	switch {
	case source.uri:
		component = source
	case rest == wholeName:
		rest, source = "(?s)^(.+)$", component
	}
	if rest == "" {
		return nil, fmt.Errorf("auth %q: the regular expression is missing: %s", options.Auth, examples)
	}
	pattern, err := regexp.Compile(rest)
	if err != nil {
		return nil, fmt.Errorf("auth %q: %w: %s", options.Auth, err, examples)
	}
	if pattern.NumSubexp() == 0 {
		return nil, fmt.Errorf("auth %q: the regular expression has no group in parentheses to say where the agent's name is: %s",
			options.Auth, examples)
	}
	return &Authenticator{
		pattern: pattern, field: source, reserved: options.Reserved, components: options.Components, component: component,
	}, nil
}

// CheckAuth accepts the values of Options.Auth that New does.
func CheckAuth(value string) error {
	_, err := New(Options{Auth: value})
	return err
}

// Authenticate returns the peer of the gRPC connection that ctx belongs to. Its errors wrap ErrUnauthenticated or ErrAgentName;
// either way the peer must not be served.
func (a *Authenticator) Authenticate(ctx context.Context) (Peer, error) {
	found, err := peerFrom(ctx)
	if err != nil {
		return Peer{}, err
	}
	leaf := found.Certificates[0]
	if component := a.ComponentOf(leaf); component != "" {
		return Peer{}, fmt.Errorf("%w: client certificate %q from %s is that of a component of the hub, which is no agent",
			ErrUnauthenticated, found.Subject, found.Address)
	}
	if found.Agent, err = a.AgentOf(leaf); err != nil {
		return Peer{}, fmt.Errorf("connection from %s: %w", found.Address, err)
	}
	return found, nil
}

// AgentOf returns the agent that a verified certificate names. Its errors wrap ErrUnauthenticated or ErrAgentName.
func (a *Authenticator) AgentOf(certificate *x509.Certificate) (Agent, error) {
	name, err := a.nameOf(certificate)
	if refusal := refuseCaller(certificate); refusal != nil {
		err = refusal
	}
	if err != nil {
		return "", fmt.Errorf("%w: client certificate %q: %w", ErrUnauthenticated, certificate.Subject.String(), err)
	}
	agent, err := ParseAgent(name, a.reserved...)
	if err != nil {
		return "", fmt.Errorf("client certificate %q: %w", certificate.Subject.String(), err)
	}
	return agent, nil
}

// nameOf returns what the certificate calls the agent. A pattern that finds more than one name is refused: which one is
// meant would hang on the order in which a certificate lists things.
func (a *Authenticator) nameOf(certificate *x509.Certificate) (string, error) {
	text, err := a.field.read(certificate)
	if err != nil {
		return "", err
	}
	matches := a.pattern.FindAllStringSubmatch(text, 2)
	switch {
	case len(matches) == 0:
		return "", fmt.Errorf("its %s %q does not match %s: issue it in that form, or change the hub's setting --auth", a.field.name, text, a.pattern)
	case len(matches) > 1:
		return "", fmt.Errorf("its %s %q matches %s in more than one place: anchor the expression in the hub's setting --auth with ^ or $",
			a.field.name, text, a.pattern)
	}
	return matches[0][1], nil
}

// subject returns the subject.
func subject(certificate *x509.Certificate) (string, error) {
	return certificate.Subject.String(), requireOneName(certificate)
}

// CommonName returns the one common name of a certificate's subject.
func CommonName(certificate *x509.Certificate) (string, error) {
	if certificate.Subject.CommonName == "" {
		return "", fmt.Errorf("its subject %q has no common name: issue it with one, or change the hub's setting --auth",
			certificate.Subject.String())
	}
	return certificate.Subject.CommonName, requireOneName(certificate)
}

// requireOneName refuses a subject with several common names, of which Go drops all but the last.
func requireOneName(certificate *x509.Certificate) error {
	commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
	names := 0
	for _, attribute := range certificate.Subject.Names {
		if attribute.Type.Equal(commonName) {
			names++
		}
	}
	if names > 1 {
		return fmt.Errorf("its subject has %d common names: issue it with one", names)
	}
	return nil
}

// URI returns the one URI among a certificate's alternative names, such as its SPIFFE ID.
func URI(certificate *x509.Certificate) (string, error) {
	switch len(certificate.URIs) {
	case 1:
		return certificate.URIs[0].String(), nil
	case 0:
		return "", errors.New("it has no URI among its alternative names: issue it with one, or name the agent by mtls:subject")
	default:
		return "", fmt.Errorf("it has %d URIs among its alternative names: issue it with one", len(certificate.URIs))
	}
}
