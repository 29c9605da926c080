package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// ForwardService has a port of each pod of a Service forwarded, as kubectl port-forward does, and returns what ask gets there; and why not
// all answered, or that there is none. ask gets a local address. Who uses it speaks to the pod itself: an API server that proxies a
// request takes the token from it, and verifies no certificate.
func (c *Client) ForwardService(ctx context.Context, name string, ask func(ctx context.Context, address string) ([]byte, error)) ([][]byte, error) {
	return c.eachPod(ctx, name, func(pod *corev1.Pod, port corev1.ServicePort) ([]byte, error) {
		var answer []byte
		err := c.forward(ctx, pod.Name, portOf(pod, port), func(address string) (err error) {
			answer, err = ask(ctx, address)
			return err
		})
		return answer, err
	})
}

// forward forwards a port of a pod for as long as use runs, which gets its local address.
func (c *Client) forward(ctx context.Context, pod, port string, use func(address string) error) error {
	f, err := c.openForward(ctx, pod, port)
	if err != nil {
		return err
	}
	defer f.Close()
	return use(f.Address)
}

// Forward is a forwarded port of a pod, for the caller to close.
type Forward struct {
	// Pod is the pod's name, and Address what leads to its port from here.
	Pod, Address string

	stop, ended chan struct{}
}

// Close ends it, and the connections through it.
func (f *Forward) Close() {
	close(f.stop)
	<-f.ended
}

// ForwardPods forwards the first port of a Service to each of its pods that run, and says which it could not.
func (c *Client) ForwardPods(ctx context.Context, service string) ([]*Forward, error) {
	var all []*Forward
	_, err := c.eachPod(ctx, service, func(pod *corev1.Pod, port corev1.ServicePort) ([]byte, error) {
		f, err := c.openForward(ctx, pod.Name, portOf(pod, port))
		if err == nil {
			all = append(all, f)
		}
		return nil, err
	})
	return all, err
}

func (c *Client) openForward(ctx context.Context, pod, port string) (*Forward, error) {
	url := c.core.RESTClient().Post().Resource("pods").Namespace(c.Namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	websocket, err := portforward.NewSPDYOverWebsocketDialer(url, c.config)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialer(websocket, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url),
		func(err error) bool { return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) })
	f, ready := &Forward{Pod: pod, stop: make(chan struct{}), ended: make(chan struct{})}, make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + port}, f.stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	var failure error // is written before ended is closed
	go func() {
		defer close(f.ended)
		failure = forwarder.ForwardPorts()
	}()
	select {
	case <-f.ended:
		return nil, fmt.Errorf("forward port %s: %w", port, errors.Join(c.explain(failure), ctx.Err()))
	case <-ctx.Done():
		close(f.stop) // it ends by the timeout of the client's requests, if it is connecting
		return nil, ctx.Err()
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		f.Close()
		return nil, err
	}
	f.Address = fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
	return f, nil
}
