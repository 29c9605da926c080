package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMap returns a ConfigMap's namespace, name and cluster, for messages.
func (c *Client) ConfigMap(name string) string {
	return fmt.Sprintf("ConfigMap %s/%s on %s", c.Namespace, name, c)
}

// ConfigMapData returns what is in a ConfigMap, nothing if there is none.
func (c *Client) ConfigMapData(ctx context.Context, name string) (map[string]string, error) {
	found, err := c.core.ConfigMaps(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s: %w", c.ConfigMap(name), c.explain(err))
	}
	return found.Data, nil
}

// ChangeConfigMap has a function change the data of a ConfigMap, unless it returns false, and reports whether it changed. One that is
// not there has no data. The function is called again if somebody else writes at the same time: entries of several people are all kept.
func (c *Client) ChangeConfigMap(ctx context.Context, name string, change func(data map[string]string) bool) (changed bool, err error) {
	empty := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	}
	err = changeObject(ctx, c.core.ConfigMaps(c.Namespace), name, empty, func(m *corev1.ConfigMap) (bool, error) {
		if m.Data == nil {
			m.Data = make(map[string]string)
		}
		changed = change(m.Data)
		return changed, nil
	})
	if err != nil {
		return false, fmt.Errorf("%s: %w", c.ConfigMap(name), c.explain(err))
	}
	return changed, nil
}
