// Package gitserver serves one Git repository of the lab over the git protocol, and commits to it.
package gitserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// repository is the name of the one repository.
const repository = "repo"

// Server serves a repository. Commit must not be called by two goroutines at once.
type Server struct {
	URL    string // of the repository, such as git://127.0.0.1:12345/repo
	Daemon *process.Process

	git  string
	tree string // working tree
	home string
}

// Start makes a repository with the files (path => content) on branch main, and serves it on an address of this machine.
func Start(ctx context.Context, h *host.Host, address string, files map[string]string) (*Server, error) {
	s := &Server{home: h.Dir()}
	var err error
	if s.git, err = exec.LookPath("git"); err != nil {
		return nil, fmt.Errorf("git: %w", err)
	}
	if s.tree, err = h.Folder("git", "tree"); err != nil {
		return nil, err
	}
	base, err := h.Folder("git", "served")
	if err != nil {
		return nil, err
	}
	bare := filepath.Join(base, repository)
	for _, args := range [][]string{
		{"init", "--quiet", "--bare", "--initial-branch=main", bare},
		{"init", "--quiet", "--initial-branch=main"},
		{"remote", "add", "origin", bare},
	} {
		if _, err := s.run(ctx, args...); err != nil {
			return nil, err
		}
	}
	if _, err := s.Commit(ctx, "Begin", files); err != nil {
		return nil, err
	}
	return s, s.serve(ctx, h, address, base)
}

func (s *Server) serve(ctx context.Context, h *host.Host, address, base string) error {
	at := func(ports []int) string { return net.JoinHostPort(address, strconv.Itoa(ports[0])) }
	programs, err := s.run(ctx, "--exec-path")
	if err != nil {
		return err
	}
	var ports []int
	s.Daemon, ports, err = h.Launch(ctx, host.Program{
		// Not `git daemon`, which would be a parent that does nothing but die first.
		Name: "git", Path: filepath.Join(programs, "git-daemon"), Ports: 1,
		Args: func(ports []int) []string {
			return []string{
				"--export-all", "--base-path=" + base, "--reuseaddr", "--informative-errors",
				"--listen=" + address, "--port=" + strconv.Itoa(ports[0]), base,
			}
		},
		Ready: func(ports []int) func(context.Context) error { return process.Listens(at(ports)) },
	})
	if err != nil {
		return err
	}
	s.URL = "git://" + at(ports) + "/" + repository
	return nil
}

// Commit writes files (path => content; empty content removes the file), commits and publishes them, and returns the
// new revision.
func (s *Server) Commit(ctx context.Context, message string, files map[string]string) (string, error) {
	for name, content := range files {
		if err := s.put(filepath.Join(s.tree, filepath.FromSlash(name)), content); err != nil {
			return "", fmt.Errorf("commit %s: %w", name, err)
		}
	}
	for _, args := range [][]string{
		{"add", "--all"},
		{"commit", "--quiet", "--message", message},
		{"push", "--quiet", "origin", "main"},
	} {
		if _, err := s.run(ctx, args...); err != nil {
			return "", err
		}
	}
	return s.run(ctx, "rev-parse", "HEAD")
}

func (s *Server) put(path, content string) error {
	if content == "" {
		return os.Remove(path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

func (s *Server) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.git, args...)
	cmd.Dir = s.tree
	cmd.Env = []string{ // and none of what the caller has configured
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Lab", "GIT_AUTHOR_EMAIL=lab@example.invalid",
		"GIT_COMMITTER_NAME=Lab", "GIT_COMMITTER_EMAIL=lab@example.invalid",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
