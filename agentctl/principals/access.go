package principals

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
)

// Access is where the principals' metrics are, and what they ask for. With none of it the pods of Service are asked through the API server,
// in plain text or, as the Service says, by TLS.
type Access struct {
	// Addresses are those of all principals, such as http://10.0.0.1:8000; the pods of Service if there are none.
	Addresses []string
	// CA is the file of the CA of the metrics' certificates, and ServerName a name of theirs: by default the host of the address, or of pods
	// the DNS name of Service.
	CA, ServerName string
	// Cert and Key are the files of the client certificate that the metrics ask for.
	Cert, Key string
	// TokenFile is the file of the bearer token that they ask for.
	TokenFile string
}

// secured reports whether the metrics are to be asked by TLS of this program's own. An API server that proxies requests passes on neither
// tokens nor client certificates, and verifies no certificate.
func (a Access) secured() bool { return a.CA != "" || a.Cert != "" || a.TokenFile != "" }

// Rights are those on the hub that asking the principals needs.
func (a Access) Rights() []authorizationv1.ResourceAttributes {
	if len(a.Addresses) > 0 {
		return nil
	}
	pods := authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "proxy"}
	if a.secured() {
		pods = authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "portforward"}
	}
	return []authorizationv1.ResourceAttributes{{Verb: "get", Resource: "services", Name: Service}, {Verb: "list", Resource: "pods"}, pods}
}

// Check refuses what does not go together, before anybody is asked.
func (a Access) Check() error {
	switch {
	case (a.Cert == "") != (a.Key == ""):
		return errors.New("--principal-metrics-cert and --principal-metrics-key: set both or neither")
	case a.ServerName != "" && !a.secured():
		return errors.New("--principal-metrics-server-name is for TLS: set --principal-metrics-ca-path too")
	}
	for _, address := range a.Addresses {
		if a.secured() && !strings.HasPrefix(address, "https://") {
			return fmt.Errorf("--principal-metrics: %s: a token, and certificates, need TLS: want an address that begins with https://", address)
		}
	}
	return nil
}

// answers returns what the principals answer, and why not all did.
func (a Access) answers(ctx context.Context, hub *cluster.Client) ([][]byte, error) {
	if len(a.Addresses) == 0 && !a.secured() {
		answers, err := hub.AskService(ctx, Service, presence.Path)
		if err != nil {
			err = fmt.Errorf("%w: --principal-metrics says where else the principal's metrics are, --principal-metrics-ca-path and "+
				"--principal-metrics-token-file what they ask for", err)
		}
		return answers, err
	}
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	if len(a.Addresses) == 0 {
		name := Service + "." + hub.Namespace + ".svc"
		return hub.ForwardService(ctx, Service, func(ctx context.Context, local string) ([]byte, error) {
			return client.over(local).get(ctx, "https://"+name+presence.Path)
		})
	}
	var answers [][]byte
	var problems []error
	for _, address := range a.Addresses {
		answer, err := client.get(ctx, strings.TrimSuffix(address, "/")+presence.Path)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		answers = append(answers, answer)
	}
	return answers, errors.Join(problems...)
}

// client asks for what needs a token, a client certificate or a CA.
type client struct {
	transport *http.Transport
	token     string
}

// client reads the files.
func (a Access) client() (client, error) {
	c := client{transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName}
	if a.CA != "" {
		text, err := os.ReadFile(a.CA)
		if err != nil {
			return c, fmt.Errorf("--principal-metrics-ca-path: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return c, fmt.Errorf("--principal-metrics-ca-path: %s has no certificate", a.CA)
		}
	}
	if a.Cert != "" {
		pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return c, fmt.Errorf("--principal-metrics-cert, --principal-metrics-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if a.TokenFile != "" {
		text, err := os.ReadFile(a.TokenFile)
		if err != nil {
			return c, fmt.Errorf("--principal-metrics-token-file: %w", err)
		}
		if c.token = strings.TrimSpace(string(text)); c.token == "" {
			return c, fmt.Errorf("--principal-metrics-token-file: %s is empty", a.TokenFile)
		}
	}
	c.transport.TLSClientConfig = config
	return c, nil
}

// over returns a client that connects to this address, whatever the host of a URL.
func (c client) over(address string) client {
	c.transport = c.transport.Clone()
	c.transport.Proxy = nil
	c.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return c
}

func (c client) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask a principal: %w", err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	// A principal that sent the token elsewhere would have it leave by plain text.
	asking := &http.Client{Transport: c.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := asking.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask a principal: %w%s", err, remedy(0, err))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status + remedy(response.StatusCode, nil))
	}
	if err != nil {
		return nil, fmt.Errorf("ask a principal: %s: %w", url, err)
	}
	return body, nil
}

// remedy says what to do about an answer, or about none.
func remedy(status int, err error) string {
	unknown := x509.UnknownAuthorityError{}
	wrong := x509.HostnameError{}
	switch {
	case errors.As(err, &unknown):
		return ": --principal-metrics-ca-path says which CA to trust"
	case errors.As(err, &wrong):
		return ": --principal-metrics-server-name says another name"
	case status == http.StatusUnauthorized:
		return ": --principal-metrics-token-file says which token to show, such as one of: kubectl create token SERVICEACCOUNT"
	case status == http.StatusForbidden:
		return ": the token's ServiceAccount needs the right to get the nonResourceURL /metrics"
	default:
		return ""
	}
}
