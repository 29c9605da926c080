package reach

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/pace"
)

// stream reads large bodies, a log and what a command writes, and sees what becomes of a small GET beside one.
func (g *ground) stream(ctx context.Context, contender string) (figures.Sample, error) {
	return g.travel(ctx, contender, func(_ *contest.Meter, r *route) (figures.Sample, error) {
		get := func(ctx context.Context) error { return r.get(ctx, small, smallest) }
		body := int64(g.Body / g.Line * g.Line)
		log := func(ctx context.Context) error { return r.get(ctx, g.ofPod("log", nil), body) }
		command := func(ctx context.Context) error { return g.exec(ctx, r) }
		if err := get(ctx); err != nil { // which connects
			return nil, err
		}
		var rates []float64
		for _, read := range []func(context.Context) error{log, command} {
			times, err := pace.OneByOne(ctx, g.Duration, read)
			if err != nil {
				return nil, err
			}
			rates = append(rates, float64(body)/1e6/figures.Percentile(times, 50).Seconds())
		}
		idle, err := pace.OneByOne(ctx, g.Duration, get)
		if err != nil {
			return nil, err
		}
		stop := pace.Meanwhile(ctx, log)
		beside, err := pace.OneByOne(ctx, g.Duration, get)
		if failure := stop(); err == nil {
			err = failure
		}
		if err != nil {
			return nil, err
		}
		before, after := figures.Percentile(idle, 50), figures.Percentile(beside, 50)
		return figures.Sample{
			{Name: "log", Unit: figures.MegabytesPerSecond, Value: rates[0]},
			{Name: "exec", Unit: figures.MegabytesPerSecond, Value: rates[1]},
			figures.Duration("GET p50, idle", figures.Milliseconds, before),
			figures.Duration("GET p50 beside the log", figures.Milliseconds, after),
			figures.Duration("GET p99 beside the log", figures.Milliseconds, figures.Percentile(beside, 99)),
			{Name: "GET p50 beside the log / idle", Unit: figures.Times, Value: after.Seconds() / before.Seconds()},
		}, nil
	})
}

// ofPod is the path of a subresource of the Pod.
func (g *ground) ofPod(subresource string, query url.Values) string {
	if query == nil {
		query = url.Values{}
	}
	query.Set("container", "web")
	return "/api/v1/namespaces/" + application + "/pods/" + g.pod + "/" + subresource + "?" + query.Encode()
}

// exec runs a command in the Pod that writes a large body, and reads that.
func (g *ground) exec(ctx context.Context, r *route) error {
	target := r.config.Host + g.ofPod("exec", url.Values{
		"command": {"head", "-c", strconv.Itoa(g.Body), "/dev/zero"}, "stdout": {"true"}, "stderr": {"true"},
	})
	executor, err := remotecommand.NewWebSocketExecutor(r.config, http.MethodGet, target)
	if err != nil {
		return err
	}
	var out tally
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard}); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	if n := out.n.Load(); n != int64(g.Body) {
		return fmt.Errorf("exec: %d bytes, want %d", n, g.Body)
	}
	return nil
}

// tally counts what is written to it.
type tally struct{ n atomic.Int64 }

func (t *tally) Write(data []byte) (int, error) {
	t.n.Add(int64(len(data)))
	return len(data), nil
}
