package identity

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
)

// DefaultAuth is the value of --auth when nothing else is set: the agent's name is its certificate's common name.
const DefaultAuth = "mtls:" + wholeName

// wholeName is the expression that stands for the common name. As an expression on the subject's text it would also find
// a common name in the text of another attribute, such as an organisation called "CN=agent-a". So it is not taken for one:
// the common name itself is read.
const wholeName = "CN=([^,]+)"

// examples ends every error about a value of --auth.
const examples = `use for example "mtls:subject:CN=([^,]+)" or "spiffe://example.org/ns/argocd/sa/argocd-agent/agent/{agent}"`

// Options configures an Authenticator.
type Options struct {
	// Auth says where an agent's name is in what it proves. It is one of these:
	//
	//	mtls:subject:<regexp>                     the subject of the client certificate, such as "CN=agent-a,O=example"
	//	mtls:uri:<regexp>                         the one URI of the client certificate, such as a SPIFFE ID
	//	mtls:<regexp>                             an older spelling of mtls:subject
	//	header:x-forwarded-client-cert:<regexp>   the one URI of the certificate that a trusted proxy vouches for
	//	spiffe://<template>                       the SPIFFE ID, whatever proves it; several templates with commas between them
	//	spiffe:                                   the SPIFFE ID, by the Table alone
	//
	// The first group of a regular expression is the agent's name. It need not match the whole, but it must match in one place only. On a
	// subject it should begin with ^ or name what is before it: any attribute can have a text that looks like another one. Only
	// CN=([^,]+) is safe as it is: it stands for the common name, whatever else there is. A Template always matches the whole.
	Auth string
	// Reserved are names that no agent may have, such as the hub's own namespace.
	Reserved []string
	// Components are the hub's own components: by their URIs if Auth reads URIs, and else by their certificates' common names.
	// No agent may have such a name.
	Components Components
	// Proxies are who may vouch for agents and components.
	Proxies Proxies
	// Tokens verify JWT-SVIDs, of whoever connects without a client certificate; nil if none are taken.
	Tokens Tokens
	// TrustDomain is what {trustDomain} means in templates. With header, it is the one of which every URI has to be; any if it is empty.
	TrustDomain string
	// Table returns which SPIFFE IDs are of which agents, beside the templates; nil if there is no such table.
	Table func() Table
}

// Authenticator reads which agent is the peer of a connection. It is safe for concurrent use.
type Authenticator struct {
	options   Options
	naming    naming
	component field // what names a component
}

// naming is how an agent's name is read from a proof.
type naming struct {
	// methods are those that may prove it.
	methods []Method
	name    func(Proof) (string, error)
}

// field is a part of a proof.
type field struct {
	name string // as logs and errors call it
	read func(Proof) (string, error)
	uri  bool
}

// subjectField, commonNameField and uriField are the fields that have a name in them.
func subjectField() field    { return field{name: "subject", read: subject} }
func commonNameField() field { return field{name: "common name", read: CommonName} }
func uriField() field        { return field{name: "URI", read: Proof.URI, uri: true} }

// New makes an Authenticator, or says what a right value looks like.
func New(options Options) (*Authenticator, error) {
	a := &Authenticator{options: options, component: uriField()}
	method, rest, _ := strings.Cut(options.Auth, ":")
	var err error
	switch method {
	case "mtls":
		err = a.nameByCertificate(rest)
	case "header":
		err = a.nameByHeader(rest)
	case "spiffe":
		a.naming, err = byID(options)
	default:
		err = fmt.Errorf("method %q is not available", method)
	}
	if err != nil {
		return nil, fmt.Errorf("auth %q: %w: %s", options.Auth, err, examples)
	}
	return a, nil
}

// nameByCertificate has agents named by a field of their certificates.
func (a *Authenticator) nameByCertificate(rest string) (err error) {
	source := subjectField()
	if expression, ok := strings.CutPrefix(rest, "subject:"); ok {
		rest = expression
	} else if expression, ok := strings.CutPrefix(rest, "uri:"); ok {
		rest, source = expression, uriField()
	}
	if !source.uri {
		a.component = commonNameField()
	}
	if !source.uri && rest == wholeName {
		rest, source = "(?s)^(.+)$", commonNameField()
	}
	a.naming.methods = []Method{MTLS}
	a.naming.name, err = byExpression(source, rest)
	return err
}

// nameByHeader has agents named by the URI that a proxy says.
func (a *Authenticator) nameByHeader(rest string) (err error) {
	header, expression, _ := strings.Cut(rest, ":")
	if !strings.EqualFold(header, xfcc.Header) {
		return fmt.Errorf("the header %q is not one that is read: use %s", header, xfcc.Header)
	}
	source := uriField()
	if strings.Contains(expression, "URI=") { // as on the text of the header
		source.read = func(p Proof) (string, error) {
			uri, err := p.URI()
			return "URI=" + uri, err
		}
	}
	name, err := byExpression(source, expression)
	a.naming.methods = []Method{XFCC}
	a.naming.name = func(p Proof) (string, error) {
		if domain := a.options.TrustDomain; domain != "" {
			if uri, err := p.URI(); err == nil && !strings.HasPrefix(uri, "spiffe://"+domain+"/") {
				return "", fmt.Errorf("its URI %q is not of the trust domain %q, the hub's setting --trust-domain", uri, domain)
			}
		}
		return name(p)
	}
	return err
}

// byExpression returns what finds the name in a field by a regular expression. One that finds more than one name is refused: which one
// is meant would hang on the order in which a certificate lists things.
func byExpression(source field, expression string) (func(Proof) (string, error), error) {
	if expression == "" {
		return nil, errors.New("the regular expression is missing")
	}
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	if pattern.NumSubexp() == 0 {
		return nil, errors.New("the regular expression has no group in parentheses to say where the agent's name is")
	}
	return func(p Proof) (string, error) {
		text, err := source.read(p)
		if err != nil {
			return "", err
		}
		matches := pattern.FindAllStringSubmatch(text, 2)
		switch {
		case len(matches) == 0:
			return "", fmt.Errorf("its %s %q does not match %s: issue it in that form, or change the hub's setting --auth", source.name, text, pattern)
		case len(matches) > 1:
			return "", fmt.Errorf("its %s %q matches %s in more than one place: anchor the expression in the hub's setting --auth with ^ or $",
				source.name, text, pattern)
		}
		return matches[0][1], nil
	}, nil
}

// CheckAuth accepts the values of Options.Auth that New does, with any trust domain.
func CheckAuth(value string) error {
	_, err := New(Options{Auth: value, TrustDomain: "example.org"})
	return err
}

// Authenticate returns the peer of the gRPC stream that ctx belongs to. Its errors wrap ErrUnauthenticated or ErrAgentName;
// either way the peer must not be served.
func (a *Authenticator) Authenticate(ctx context.Context) (Peer, error) {
	proof, err := a.proofOf(ctx)
	if err != nil {
		return Peer{}, err
	}
	if component := a.ComponentOf(proof); component != "" {
		return Peer{}, fmt.Errorf("%w: %s from %s is that of a component of the hub, which is no agent", ErrUnauthenticated, proof, proof.Address)
	}
	agent, err := a.AgentOf(proof)
	if err != nil {
		return Peer{}, fmt.Errorf("connection from %s: %w", proof.Address, err)
	}
	return Peer{Proof: proof, Agent: agent}, nil
}

// proofOf returns what the peer of the gRPC stream that ctx belongs to has shown.
func (a *Authenticator) proofOf(ctx context.Context) (Proof, error) {
	c, err := connectionOf(ctx)
	if err != nil {
		return Proof{}, err
	}
	proof, err := a.prove(ctx, c)
	proof.Session = sessionOf(ctx)
	return proof, err
}

// prove takes a token for a proof if there is nothing else.
func (a *Authenticator) prove(ctx context.Context, c Connection) (Proof, error) {
	token, given := bearer(ctx)
	if a.options.Tokens == nil || !given || len(c.Header) > 0 || c.TLS != nil && len(c.TLS.PeerCertificates) > 0 {
		return a.options.Proxies.Prove(c)
	}
	var address string
	if c.Address != nil {
		address = c.Address.String()
	}
	if c.TLS == nil && (!a.options.Proxies.Local || !Loopback(c.Address)) {
		return Proof{}, fmt.Errorf("%w: the JWT-SVID from %s came in clear text: have the load balancer speak TLS to the principal", ErrUnauthenticated, address)
	}
	proof, err := a.options.Tokens.Prove(token)
	if err != nil {
		return Proof{}, fmt.Errorf("%w: JWT-SVID from %s: %w", ErrUnauthenticated, address, err)
	}
	proof.Method, proof.Token, proof.Address = JWTSVID, token, address
	return proof, nil
}

// bearer returns the bearer token of the stream that ctx belongs to, and whether there is one.
func bearer(ctx context.Context) (token string, given bool) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	return token, found && strings.EqualFold(scheme, "bearer")
}

// AgentOf returns the agent that a proof names, if the proof is good. Its errors wrap ErrUnauthenticated or ErrAgentName.
func (a *Authenticator) AgentOf(proof Proof) (Agent, error) {
	name, err := a.nameOf(proof)
	if refusal := refuseCaller(proof); refusal != nil {
		err = refusal
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrUnauthenticated, proof, err)
	}
	agent, err := ParseAgent(name, a.options.Reserved...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", proof, err)
	}
	return agent, nil
}

// nameOf returns what a proof calls the agent.
func (a *Authenticator) nameOf(proof Proof) (string, error) {
	if len(a.naming.methods) > 0 && !slices.Contains(a.naming.methods, proof.Method) {
		return "", fmt.Errorf("it proves who it is by %s, and the hub's setting --auth asks for %s", proof.Method, a.naming.methods[0])
	}
	return a.naming.name(proof)
}

// subject returns the subject.
func subject(proof Proof) (string, error) {
	if proof.leaf() == nil {
		return "", errNoSubject
	}
	return proof.Subject, requireOneName(proof.leaf())
}

// errNoSubject means that only a certificate itself has a subject that one may rely on.
var errNoSubject = errors.New("the subject of a certificate is read only from the client's own TLS connection: name agents and components by their URIs")

// CommonName returns the one common name of a certificate's subject.
func CommonName(proof Proof) (string, error) {
	certificate := proof.leaf()
	if certificate == nil {
		return "", errNoSubject
	}
	if certificate.Subject.CommonName == "" {
		return "", fmt.Errorf("its subject %q has no common name: issue it with one, or change the hub's setting --auth", proof.Subject)
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
