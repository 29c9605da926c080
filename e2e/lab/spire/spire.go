// Package spire runs the SPIRE server and agent of a trust domain, registers workloads with them, and federates trust domains. All
// programs of the lab run as one user, so a workload is known by the path of its binary: each has a hard link of its own.
package spire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// defaultTTL is how long an X.509-SVID is good for.
const defaultTTL = time.Hour

// Options say what to run. All but TTL are required.
type Options struct {
	Host        *host.Host
	Tools       *toolset.Set
	TrustDomain string        // such as hub.test
	TTL         time.Duration // of JWT-SVIDs, and of X.509-SVIDs whose entry says nothing else; an hour if it is zero
}

// Domain is a trust domain: a SPIRE server and one agent, each of which can be stopped and restarted.
type Domain struct {
	Name   string
	Server *process.Process
	Agent  *process.Process
	// Socket is the address of the Workload API, and API that of the server's for its agents, host:port.
	Socket, API string

	unique     string // its name in the lab, which may have several of a name
	program    string // spire-server, which is also its own client
	private    string // the server's own socket
	bundlePort int
}

// Entry is a registration entry.
type Entry struct {
	SPIFFEID      string
	Path          string    // of the workload's binary
	FederatesWith []*Domain // whose bundles the workload gets besides its own
	TTL           time.Duration
	DNS           []string
	Downstream    bool // the workload may ask for intermediate CAs
}

// Start starts a trust domain, and returns when its Workload API answers.
func Start(ctx context.Context, o Options) (*Domain, error) {
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	d := &Domain{Name: o.TrustDomain, unique: o.Host.Unique("spire-" + o.TrustDomain), program: o.Tools.Program(toolset.SpireServer)}
	number, err := d.startServer(ctx, o)
	if err == nil {
		err = d.startAgent(ctx, o, number)
	}
	if err != nil {
		return nil, fmt.Errorf("SPIRE of %s: %w", d.Name, err)
	}
	return d, nil
}

// longestSocket is what the path of a Unix socket may have, in bytes.
const longestSocket = 107

// socket is the path of a Unix socket in a new folder of the trust domain.
func (d *Domain) socket(o Options, folder string) (string, error) {
	dir, err := o.Host.Folder(d.unique, folder)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "api.sock")
	if len(path) > longestSocket {
		return "", fmt.Errorf("%s is too long for a Unix socket: set TMPDIR to a shorter folder", path)
	}
	return path, nil
}

// serverConfig is that of a server. Keys are on disk, so that it is the same after a restart. The two intervals, of server and
// agent, are what a workload waits for a new entry: 5 s each by default.
const serverConfig = `server {
  bind_address = "127.0.0.1"
  bind_port = "%d"
  socket_path = %q
  trust_domain = %q
  data_dir = %q
  ca_ttl = "24h"
  agent_ttl = "12h"
  default_x509_svid_ttl = %q
  default_jwt_svid_ttl = %q
  experimental { cache_reload_interval = "500ms" }
  federation {
    bundle_endpoint {
      address = "127.0.0.1"
      port = %d
      profile "https_spiffe" {}
    }
  }
}
plugins {
  DataStore "sql" { plugin_data { database_type = "sqlite3" connection_string = %q } }
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "disk" { plugin_data { keys_path = %q } }
}
health_checks { listener_enabled = true bind_address = "127.0.0.1" bind_port = "%d" }
`

// startServer starts the server, and returns the port that agents connect to.
func (d *Domain) startServer(ctx context.Context, o Options) (int, error) {
	var err error
	if d.private, err = d.socket(o, "server"); err != nil {
		return 0, err
	}
	folder := filepath.Dir(d.private)
	config := filepath.Join(folder, "server.conf")
	var ports []int
	d.Server, ports, err = o.Host.Define(host.Program{
		Name: d.unique + "-server", Path: d.program, Ports: 3,
		Args:  func([]int) []string { return []string{"run", "-config", config} },
		Ready: ready(2),
	})
	if err != nil {
		return 0, err
	}
	d.API, d.bundlePort = port.Address(ports[0]), ports[1]
	text := fmt.Sprintf(serverConfig, ports[0], d.private, d.Name, folder, o.TTL, o.TTL, ports[1], filepath.Join(folder, "data.sqlite3"),
		filepath.Join(folder, "keys.json"), ports[2])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return 0, err
	}
	return ports[0], d.Server.Start(ctx)
}

// agentConfig is that of an agent.
const agentConfig = `agent {
  data_dir = %q
  server_address = "127.0.0.1"
  server_port = "%d"
  socket_path = %q
  trust_domain = %q
  insecure_bootstrap = true
  join_token = %q
  experimental { sync_interval = "1s" }
  sds { default_svid_name = "default" default_bundle_name = "ROOTCA" default_all_bundles_name = "ALL" }
}
plugins {
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "disk" { plugin_data { directory = %q } }
  WorkloadAttestor "unix" { plugin_data { discover_workload_path = true workload_size_limit = -1 } }
}
health_checks { listener_enabled = true bind_address = "127.0.0.1" bind_port = "%d" }
`

// startAgent starts the agent of a server that listens on a port.
func (d *Domain) startAgent(ctx context.Context, o Options, server int) error {
	socket, err := d.socket(o, "agent")
	if err != nil {
		return err
	}
	var token struct{ Value string }
	if err := d.ask(ctx, &token, "token", "generate", "-spiffeID", d.id("/host")); err != nil {
		return err
	}
	folder := filepath.Dir(socket)
	config := filepath.Join(folder, "agent.conf")
	d.Socket = "unix://" + socket
	var ports []int
	d.Agent, ports, err = o.Host.Define(host.Program{
		Name: d.unique + "-agent", Path: o.Tools.Program(toolset.SpireAgent), Ports: 1,
		Args:  func([]int) []string { return []string{"run", "-config", config} },
		Ready: ready(0),
	})
	if err != nil {
		return err
	}
	text := fmt.Sprintf(agentConfig, folder, server, socket, d.Name, token.Value, folder, ports[0])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	return d.Agent.Start(ctx)
}

// ready is a probe of one of a program's ports.
func ready(which int) func(ports []int) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ports []int) func(context.Context) error {
		return process.Answers(client, "http://"+port.Address(ports[which])+"/ready")
	}
}

// Register makes an entry, and returns its ID for Delete. The workload has it within two seconds.
func (d *Domain) Register(ctx context.Context, e Entry) (string, error) {
	args := []string{"entry", "create", "-parentID", d.id("/host"), "-spiffeID", e.SPIFFEID, "-selector", "unix:path:" + e.Path}
	for _, other := range e.FederatesWith {
		args = append(args, "-federatesWith", other.id(""))
	}
	for _, name := range e.DNS {
		args = append(args, "-dns", name)
	}
	if e.Downstream {
		args = append(args, "-downstream")
	}
	if e.TTL > 0 {
		args = append(args, "-x509SVIDTTL", strconv.Itoa(int(e.TTL.Seconds())))
	}
	var made struct {
		Results []struct{ Entry struct{ ID string } }
	}
	if err := d.ask(ctx, &made, args...); err != nil {
		return "", err
	}
	if len(made.Results) != 1 {
		return "", errors.New("SPIRE did not say which entry it made")
	}
	return made.Results[0].Entry.ID, nil
}

// Stop stops the agent and the server.
func (d *Domain) Stop(ctx context.Context) error {
	return errors.Join(d.Agent.Stop(ctx), d.Server.Stop(ctx))
}

// Delete deletes an entry.
func (d *Domain) Delete(ctx context.Context, entry string) error {
	return d.ask(ctx, nil, "entry", "delete", "-entryID", entry)
}

// CAs returns the trust domain's bundle as PEM.
func (d *Domain) CAs(ctx context.Context) ([]byte, error) {
	text, err := d.run(ctx, "bundle", "show", "-format", "pem")
	return []byte(text), err
}

// PrepareCA has the server make its next CA, which joins the bundle, and returns its ID.
func (d *Domain) PrepareCA(ctx context.Context) (string, error) {
	var made struct {
		Prepared struct {
			ID string `json:"authority_id"`
		} `json:"prepared_authority"`
	}
	err := d.ask(ctx, &made, "localauthority", "x509", "prepare")
	return made.Prepared.ID, err
}

// ActivateCA has the server sign by a CA that it has prepared.
func (d *Domain) ActivateCA(ctx context.Context, id string) error {
	return d.ask(ctx, nil, "localauthority", "x509", "activate", "-authorityID", id)
}

// RevokeOldCA takes the CA before the present one from the bundle.
func (d *Domain) RevokeOldCA(ctx context.Context) error {
	var state struct {
		Old struct {
			ID string `json:"authority_id"`
		}
	}
	if err := d.ask(ctx, &state, "localauthority", "x509", "show"); err != nil {
		return err
	}
	if err := d.ask(ctx, nil, "localauthority", "x509", "taint", "-authorityID", state.Old.ID); err != nil {
		return err
	}
	return d.ask(ctx, nil, "localauthority", "x509", "revoke", "-authorityID", state.Old.ID)
}

// Federate has each of two trust domains know the other's bundle, and follow it.
func Federate(ctx context.Context, a, b *Domain) error {
	return errors.Join(a.Follow(ctx, b), b.Follow(ctx, a))
}

// Follow has a trust domain know the bundle of another one.
func (d *Domain) Follow(ctx context.Context, other *Domain) error {
	bundle, err := other.run(ctx, "bundle", "show", "-format", "spiffe")
	if err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(d.private), other.Name+".bundle")
	if err := os.WriteFile(file, []byte(bundle), 0o600); err != nil {
		return err
	}
	return d.ask(ctx, nil, "federation", "create", "-trustDomain", other.Name, "-bundleEndpointProfile", "https_spiffe",
		"-bundleEndpointURL", "https://"+port.Address(other.bundlePort), "-endpointSpiffeID", other.id("/spire/server"),
		"-trustDomainBundleFormat", "spiffe", "-trustDomainBundlePath", file)
}

// Trust has a trust domain know CAs, in PEM, as the bundle of another one that no SPIRE serves.
func (d *Domain) Trust(ctx context.Context, other *Domain, cas []byte) error {
	file := filepath.Join(filepath.Dir(d.private), other.Name+".pem")
	if err := os.WriteFile(file, cas, 0o600); err != nil {
		return err
	}
	return d.ask(ctx, nil, "bundle", "set", "-id", other.id(""), "-format", "pem", "-path", file)
}

// Forget ends that a trust domain follows another one, and takes the other's bundle from its workloads.
func (d *Domain) Forget(ctx context.Context, other *Domain) error {
	if err := d.ask(ctx, nil, "federation", "delete", "-id", other.id("")); err != nil {
		return err
	}
	return d.ask(ctx, nil, "bundle", "delete", "-id", other.id(""), "-mode", "dissociate")
}

// id is a SPIFFE ID of the trust domain.
func (d *Domain) id(path string) string { return "spiffe://" + d.Name + path }

// ask runs a command of the server's client, and reads what it says into an object if that is not nil.
func (d *Domain) ask(ctx context.Context, into any, args ...string) error {
	out, err := d.run(ctx, append(args, "-output", "json")...)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("spire-server %s: %w", strings.Join(args[:2], " "), err)
	}
	return nil
}

func (d *Domain) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.program, append(args, "-socketPath", d.private)...)
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("spire-server %s: %w\n%s", strings.Join(args[:2], " "), err, out)
	}
	return string(out), nil
}
