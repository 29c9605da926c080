package argocd

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// run starts the programs, those first that others ask for things.
func (i *Installation) run(ctx context.Context) error {
	if err := i.startRedis(ctx); err != nil {
		return err
	}
	if err := i.startRepoServer(ctx); err != nil {
		return err
	}
	if i.options.Controller {
		return i.StartController(ctx, i.RedisAddress)
	}
	return nil
}

func (i *Installation) startRedis(ctx context.Context) error {
	path, err := process.FindProgram(toolset.Redis)
	if err != nil {
		return err
	}
	var ports []int
	i.Redis, ports, err = i.options.Host.Launch(ctx, host.Program{
		Name: i.options.Cluster.Name + "-redis", Path: path, Ports: 1,
		Args: func(ports []int) []string {
			return []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(ports[0]), "--save", "", "--appendonly", "no",
				"--requirepass", RedisPassword}
		},
		Ready: func(ports []int) func(context.Context) error { return process.Listens(port.Address(ports[0])) },
	})
	if err != nil {
		return err
	}
	i.RedisAddress = port.Address(ports[0])
	return nil
}

func (i *Installation) startRepoServer(ctx context.Context) error {
	var ports []int
	var err error
	i.RepoServer, ports, err = i.launch(ctx, toolset.ArgoCDRepoServer, 2, func(ports []int) []string {
		args := []string{
			"--address=127.0.0.1", "--port=" + strconv.Itoa(ports[0]),
			"--metrics-address=127.0.0.1", "--metrics-port=" + strconv.Itoa(ports[1]),
			"--redis=" + i.RedisAddress, "--disable-tls", "--logformat=text",
		}
		if !i.options.Tools.Has(toolset.ArgoCD34) { // which has no such flag
			args = append(args, "--client-ca-path=")
		}
		return args
	}, func(ports []int) func(context.Context) error { return process.Listens(port.Address(ports[0])) })
	if err != nil {
		return err
	}
	i.repoServer = port.Address(ports[0])
	return nil
}

// StartServer starts argocd-server, for people, with the Redis at an address: the installation's own, or a proxy of it. One
// that runs already is stopped before.
func (i *Installation) StartServer(ctx context.Context, redis string) error {
	if err := stop(ctx, i.Server); err != nil {
		return err
	}
	var ports []int
	var err error
	i.Server, ports, err = i.launch(ctx, toolset.ArgoCDServer, 2, func(ports []int) []string {
		return []string{
			"--address=127.0.0.1", "--port=" + strconv.Itoa(ports[0]),
			"--metrics-address=127.0.0.1", "--metrics-port=" + strconv.Itoa(ports[1]),
			"--redis=" + redis, "--repo-server=" + i.repoServer, "--repo-server-plaintext",
			"--insecure", "--disable-auth", "--application-namespaces=*", "--logformat=text",
		}
	}, healthy(0))
	if err != nil {
		return err
	}
	i.URL = "http://" + port.Address(ports[0])
	return nil
}

// StartController starts the application controller, as StartServer starts the server.
func (i *Installation) StartController(ctx context.Context, redis string) error {
	if err := stop(ctx, i.Controller); err != nil {
		return err
	}
	var err error
	i.Controller, _, err = i.launch(ctx, toolset.ArgoCDController, 1, func(ports []int) []string {
		return []string{
			"--metrics-port=" + strconv.Itoa(ports[0]),
			"--redis=" + redis, "--repo-server=" + i.repoServer, "--repo-server-plaintext", "--logformat=text",
		}
	}, healthy(0))
	return err
}

// StartApplicationSets starts the ApplicationSet controller.
func (i *Installation) StartApplicationSets(ctx context.Context) (*process.Process, error) {
	p, _, err := i.launch(ctx, toolset.ArgoCDAppSets, 3, func(ports []int) []string {
		return []string{
			"--kubeconfig=" + i.kubeconfig, "--namespace=" + Namespace, "--logformat=text",
			"--metrics-addr=" + port.Address(ports[0]), "--probe-addr=" + port.Address(ports[1]), "--webhook-addr=" + port.Address(ports[2]),
			"--argocd-repo-server=" + i.repoServer, "--repo-server-plaintext",
		}
	}, func(ports []int) func(context.Context) error { return process.Listens(port.Address(ports[2])) })
	return p, err
}

// stop stops a program, if there is one.
func stop(ctx context.Context, program *process.Process) error {
	if program == nil {
		return nil
	}
	return program.Stop(ctx)
}

// launch starts one of Argo CD's programs with what all of them need.
func (i *Installation) launch(
	ctx context.Context, name string, ports int, args func([]int) []string, ready func([]int) func(context.Context) error,
) (*process.Process, []int, error) {
	unique := i.options.Cluster.Name + "-" + name
	dir, err := i.options.Host.Folder("run", unique)
	if err != nil {
		return nil, nil, err
	}
	return i.options.Host.Launch(ctx, host.Program{
		Name: unique, Path: i.options.Tools.Program(name), Ports: ports, Args: args, Ready: ready,
		Env: []string{
			"PATH=" + i.wrappers + string(filepath.ListSeparator) + os.Getenv("PATH"),
			"HOME=" + dir, "TMPDIR=" + dir,
			"KUBECONFIG=" + i.kubeconfig, "ARGOCD_FAKE_IN_CLUSTER=true",
			"ARGOCD_GPG_ENABLED=false", "ARGOCD_ASK_PASS_SOCK=" + filepath.Join(dir, "askpass.sock"),
			"ARGOCD_TLS_DATA_PATH=" + dir, "ARGOCD_SSH_DATA_PATH=" + dir, "ARGOCD_APP_CONF_PATH=" + dir,
			"REDIS_PASSWORD=" + RedisPassword,
			"ARGOCD_K8S_CLIENT_QPS=500", "ARGOCD_K8S_CLIENT_BURST=1000",
		},
	})
}

// healthy is a probe of a program that tells its health on one of its ports.
func healthy(which int) func(ports []int) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ports []int) func(context.Context) error {
		return process.Answers(client, fmt.Sprintf("http://%s/healthz", port.Address(ports[which])))
	}
}

// wrappers makes the script that the repo server calls to verify commits, which nobody signs here.
func wrappers(h *host.Host) (string, error) {
	path, err := h.Write(filepath.Join("wrappers", "git-verify-wrapper.sh"), []byte("#!/bin/sh\nexit 0\n"))
	if err != nil {
		return "", err
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return "", err
	}
	return filepath.Dir(path), nil
}
