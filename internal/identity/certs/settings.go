package certs

import (
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Settings are what an operator decides about a Source: where its certificate and its trusted CAs come from. A program
// declares the flags of one or both, and then makes the Source.
//
// This is the one place that chooses between origins. A new kind of origin gets its flags in Flags and its case in
// choose.
type Settings struct {
	// Plaintext, if it points to true, has connections not secured: a proxy next to the program does that.
	Plaintext *bool
	// Workload is where the SPIFFE Workload API is, nil if the program cannot use it. What it gives wins over Secrets, and files win
	// over it.
	Workload *WorkloadAPI

	pair, roots choice
	pairless    bool
	serverID    string
}

// WorkloadAPI is where a program finds the SPIFFE Workload API.
type WorkloadAPI struct{ socket string }

// Address is the address of the socket, empty if there is none.
func (w *WorkloadAPI) Address() string { return w.socket }

// Declare declares the address of the socket.
func (w *WorkloadAPI) Declare(set *settings.Set) {
	set.String(&w.socket, "spiffe-endpoint-socket", workloadapi.SocketEnv, "",
		"address of the SPIFFE Workload API, such as unix:///run/spire/sockets/agent.sock: certificates and trusted CAs come from there, where no files are set",
		func(address string) error {
			if address == "" {
				return nil
			}
			return workloadapi.ValidateAddress(address)
		})
}

// Flags are those that say where one half of a Source comes from.
type Flags struct {
	// Files are the flags of PEM files: of a certificate and of its key, or of trusted CAs.
	Files []Flag
	// Secret is the flag of a Kubernetes Secret, in programs that can read Secrets. Files win over it.
	Secret Flag
	// Required makes it an error to set nothing, in programs without Secrets.
	Required bool
	// Hint says what to do when there is nothing, such as "create it with: argocd-agentctl pki issue agent".
	Hint string
}

// Flag is one flag, with its variable.
type Flag struct {
	Name, Variable, Usage string
	// Fallback is the value when nothing is set.
	Fallback string
}

// Secrets returns the origins that are Kubernetes Secrets. Package secret implements it.
type Secrets interface {
	Pair(name string) Origin
	Roots(name string) Origin
}

// choice is where an operator says that one half comes from.
type choice struct {
	flags  Flags
	files  []string
	secret string
}

// DeclarePair declares the flags of the certificate and its key.
func (s *Settings) DeclarePair(set *settings.Set, flags Flags) { s.declare(&s.pair, set, flags) }

// DeclareRoots declares the flags of the trusted CAs.
func (s *Settings) DeclareRoots(set *settings.Set, flags Flags) { s.declare(&s.roots, set, flags) }

// DeclareServerID declares which SPIFFE ID the principal has. The variables begin with a prefix.
func (s *Settings) DeclareServerID(set *settings.Set, prefix string) {
	set.String(&s.serverID, "principal-spiffe-id", prefix+"_PRINCIPAL_SPIFFE_ID", "",
		"SPIFFE ID that the principal has to have, instead of the name that it is reached by; required where trusted CAs come from the SPIFFE Workload API",
		func(id string) error {
			if id == "" {
				return nil
			}
			_, err := spiffeid.FromString(id)
			return err
		})
	set.Rule(func() error {
		if s.serverID == "" && s.workload() != "" && !s.roots.fromFiles() && !s.plaintext() {
			return errors.New("want the SPIFFE ID of the principal: the CAs of the Workload API vouch for every workload, and names of hosts prove nothing")
		}
		return nil
	}, "principal-spiffe-id", "spiffe-endpoint-socket")
}

// ServerID is the SPIFFE ID that the principal has to have; the zero ID if none is set.
func (s *Settings) ServerID() spiffeid.ID {
	if s.serverID == "" {
		return spiffeid.ID{}
	}
	return spiffeid.RequireFromString(s.serverID) // it was checked
}

// workload is the address of the SPIFFE Workload API, empty if there is none.
func (s *Settings) workload() string {
	if s.Workload == nil {
		return ""
	}
	return s.Workload.socket
}

func (s *Settings) plaintext() bool { return s.Plaintext != nil && *s.Plaintext }

// WithoutPair leaves the certificate out, where something else than that proves who the program is.
func (s *Settings) WithoutPair() { s.pairless = true }

// PairSecret returns the name of the Secret that the certificate and its key are taken from, empty if they come from elsewhere.
func (s *Settings) PairSecret() string {
	if s.plaintext() || s.pairless || s.pair.fromFiles() || s.workload() != "" {
		return ""
	}
	return s.pair.secret
}

// RootsSecret returns the name of the Secret that the trusted CAs are taken from, empty if they come from elsewhere.
func (s *Settings) RootsSecret() string {
	if s.plaintext() || s.roots.fromFiles() || s.workload() != "" {
		return ""
	}
	return s.roots.secret
}

// FromWorkload reports whether both the certificate and the trusted CAs come from the SPIFFE Workload API.
func (s *Settings) FromWorkload() bool {
	return s.workload() != "" && !s.plaintext() && !s.pair.fromFiles() && !s.roots.fromFiles()
}

// OnlyRoots returns the settings of a Source that has the same trusted CAs and no certificate.
func (s *Settings) OnlyRoots() *Settings {
	roots := *s
	roots.WithoutPair()
	return &roots
}

// Source returns what the settings describe, nil if nothing is set. secrets may be nil in programs that declare no flag of
// a Secret. The name is that of Options.
func (s *Settings) Source(name string, secrets Secrets, logger *slog.Logger, metrics *Metrics) (*Source, error) {
	if s.plaintext() {
		return Plaintext(name, logger), nil
	}
	if !s.Configured() {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	o := Options{Name: name, Logger: logger, Metrics: metrics}
	if !s.pairless {
		o.Pair, o.PairHint = s.choose(&s.pair, WorkloadPair,
			func(files []string) Origin { return PairFiles(files[0], files[1]) },
			func(name string) Origin { return secrets.Pair(name) })
	}
	o.Roots, o.RootsHint = s.choose(&s.roots, WorkloadBundles,
		func(files []string) Origin { return RootsFile(files[0]) },
		func(name string) Origin { return secrets.Roots(name) })
	return New(o)
}

// Configured says whether anything is set.
func (s *Settings) Configured() bool {
	return s.workload() != "" || s.pair.configured() || s.roots.configured()
}

// SecretNames returns the names of the Secrets that the settings name, also of those for which files are taken instead.
func (s *Settings) SecretNames() []string {
	return slices.DeleteFunc([]string{s.pair.secret, s.roots.secret}, func(name string) bool { return name == "" })
}

func (s *Settings) declare(c *choice, set *settings.Set, flags Flags) {
	c.flags, c.files = flags, make([]string, len(flags.Files))
	for i, file := range flags.Files {
		set.String(&c.files[i], file.Name, file.Variable, file.Fallback, file.Usage)
		set.Rule(func() error {
			if flags.Required && c.files[i] == "" && s.workload() == "" && !s.plaintext() {
				return errors.New("want a value")
			}
			return nil
		}, file.Name)
	}
	set.Rule(func() error {
		for _, file := range c.files {
			if (file == "") != (c.files[0] == "") {
				return errors.New("set both or neither")
			}
		}
		return nil
	}, flags.names()...)
	if flags.Secret.Name != "" {
		set.String(&c.secret, flags.Secret.Name, flags.Secret.Variable, flags.Secret.Fallback, flags.Secret.Usage,
			settings.NonEmpty, settings.DNSSubdomain)
	}
}

func (c *choice) configured() bool { return c.fromFiles() || c.secret != "" }

func (c *choice) fromFiles() bool { return len(c.files) > 0 && c.files[0] != "" }

// choose returns the origin that the operator chose, nil for none, and a hint for when nothing is there.
func (s *Settings) choose(c *choice, workload func(socket string) Origin, files func(paths []string) Origin, secret func(name string) Origin,
) (Origin, string) {
	switch {
	case c.fromFiles():
		hint := "see --" + strings.Join(c.flags.names(), " and --")
		if c.flags.Secret.Name == "" && c.flags.Hint != "" {
			hint += ", or " + c.flags.Hint
		}
		return files(c.files), hint
	case s.workload() != "" && len(c.flags.Files) > 0:
		return workload(s.workload()), ""
	case c.secret != "":
		return secret(c.secret), c.flags.Hint
	default:
		return nil, ""
	}
}

// names are those of the flags of files.
func (f Flags) names() []string {
	var names []string
	for _, file := range f.Files {
		names = append(names, file.Name)
	}
	return names
}
