package manifest

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// Values are those of the chart argocd-agent-spoke that say which agent it is for.
type Values struct {
	Name   string       `json:"name"`
	Mode   string       `json:"mode"`
	Server ServerValues `json:"server"`
	// Certificates is nil where those of the agent are in Secrets on its cluster.
	Certificates *CertificateValues `json:"certificates,omitempty"`
}

// ServerValues say where the principal is, and who.
type ServerValues struct {
	Address  string `json:"address"`
	Port     int    `json:"port"`
	SPIFFEID string `json:"spiffeID,omitempty"`
}

// CertificateValues are of an agent that enrolls.
type CertificateValues struct {
	Mode   string       `json:"mode"`
	CA     string       `json:"ca"` // PEM of the CAs by which it knows the principal
	Enroll EnrollValues `json:"enroll"`
}

// EnrollValues are the token, and the principal's port for it.
type EnrollValues struct {
	Token string `json:"token"`
	Port  int    `json:"port"`
}

// Values returns those of a spoke. The token is empty for an agent that does not enroll.
func (s Spoke) Values(name string, ca []byte, token string) Values {
	v := Values{Name: name, Mode: s.Mode, Server: ServerValues{Address: s.Server, Port: s.Port, SPIFFEID: s.ServerID}}
	if token != "" {
		v.Certificates = &CertificateValues{Mode: "enroll", CA: string(ca), Enroll: EnrollValues{Token: token, Port: s.EnrollmentPort}}
	}
	return v
}

// WriteFile writes the values to a new file, which only the user may read: it may have a token.
func (v Values) WriteFile(path string) error {
	text, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("file of the values: %w", err)
	}
	if _, err := file.Write(text); err != nil {
		_ = file.Close() // what is wrong is known
		return fmt.Errorf("file of the values: %w", err)
	}
	return file.Close()
}
