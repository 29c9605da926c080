package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ErrNoService is wrapped where a Service is not there.
var ErrNoService = errors.New("there is no")

// AskService sends GET to a path of each pod of a Service, through the API server, and returns what they answer; and why not all
// did, or that there is none. It does so by TLS if the Service's port has the name https, or one that begins with it, or that appProtocol.
func (c *Client) AskService(ctx context.Context, name, path string) ([][]byte, error) {
	return c.eachPod(ctx, name, func(pod *corev1.Pod, port corev1.ServicePort) ([]byte, error) {
		scheme := "http"
		if strings.HasPrefix(port.Name, "https") || port.AppProtocol != nil && *port.AppProtocol == "https" {
			scheme = "https"
		}
		answer, err := c.core.Pods(c.Namespace).ProxyGet(scheme, pod.Name, portOf(pod, port), path, nil).DoRaw(ctx)
		return answer, c.explain(err)
	})
}

// eachPod has each running pod of a Service asked at its first port, and returns what they answer; and why not all did, or that there is none.
func (c *Client) eachPod(ctx context.Context, name string, ask func(*corev1.Pod, corev1.ServicePort) ([]byte, error)) ([][]byte, error) {
	where := fmt.Sprintf("Service %s/%s on %s", c.Namespace, name, c)
	service, err := c.core.Services(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w %s", ErrNoService, where)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", where, c.explain(err))
	case len(service.Spec.Selector) == 0 || len(service.Spec.Ports) == 0:
		return nil, fmt.Errorf("%s has no selector or no port", where)
	}
	pods, err := c.core.Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return nil, fmt.Errorf("pods of %s: %w", where, c.explain(err))
	}
	var answers [][]byte
	var problems []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		answer, err := ask(pod, service.Spec.Ports[0])
		if err != nil {
			problems = append(problems, fmt.Errorf("pod %s of %s: %w", pod.Name, where, err))
			continue
		}
		answers = append(answers, answer)
	}
	if len(answers)+len(problems) == 0 {
		return nil, fmt.Errorf("no pod of %s is running", where)
	}
	return answers, errors.Join(problems...)
}

// portOf returns the port of a pod that a Service's port leads to.
func portOf(pod *corev1.Pod, port corev1.ServicePort) string {
	if number := port.TargetPort.IntValue(); number != 0 {
		return strconv.Itoa(number)
	}
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.Name == port.TargetPort.StrVal && p.Name != "" {
				return strconv.Itoa(int(p.ContainerPort))
			}
		}
	}
	return strconv.Itoa(int(port.Port))
}
