package apiproxy

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// What client-go does with its own connections is left to client-go.
func TestSimple(t *testing.T) {
	base := &url.URL{Scheme: "https", Host: "10.0.0.1:443"}
	inCluster := rest.Config{
		Host: base.String(), BearerTokenFile: "/var/run/token", TLSClientConfig: rest.TLSClientConfig{CAFile: "/var/run/ca.crt"},
	}
	require.True(t, simple(&inCluster, base))
	for name, change := range map[string]func(*rest.Config){
		"a client certificate": func(c *rest.Config) { c.CertFile, c.KeyFile = "tls.crt", "tls.key" },
		"a credential plugin":  func(c *rest.Config) { c.ExecProvider = &clientcmdapi.ExecConfig{Command: "aws"} },
		"an auth provider":     func(c *rest.Config) { c.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} },
		"a transport":          func(c *rest.Config) { c.Transport = http.DefaultTransport },
		"a proxy":              func(c *rest.Config) { c.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy:3128"}) },
		"a bad proxy": func(c *rest.Config) {
			c.Proxy = func(*http.Request) (*url.URL, error) { return nil, http.ErrNotSupported }
		},
	} {
		config := inCluster
		change(&config)
		require.False(t, simple(&config, base), name)
	}
}
