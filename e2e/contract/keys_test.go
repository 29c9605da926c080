package contract_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/cache"
	"github.com/argoproj/argo-cd/v3/util/cache/appstate"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// recorder is a hook of a client of Redis that keeps what it writes to, and where it publishes.
type recorder struct{ keys, channels []string }

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "set", "del":
			r.keys = append(r.keys, fmt.Sprint(cmd.Args()[1]))
		case "publish":
			r.channels = append(r.channels, fmt.Sprint(cmd.Args()[1]))
		}
		return next(ctx, cmd)
	}
}

// Every key that Argo CD's cache writes is taken apart, and put together again as it was.
func TestRedisKeysAreThoseOfArgoCDsCache(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Address})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	written := &recorder{}
	client.AddHook(written)
	rapid.Check(t, func(t *rapid.T) {
		*written = recorder{}
		compression := rapid.SampledFrom([]cache.RedisCompressionType{cache.RedisCompressionGZip, cache.RedisCompressionNone}).Draw(t, "compression")
		state := appstate.NewCache(cache.NewCache(cache.NewRedisCache(client, time.Hour, compression)), time.Hour)
		format := keys.Format{Version: common.CacheVersion, Compressed: compression == cache.RedisCompressionGZip}
		id := anApplication().Draw(t, "application")
		instance := argocd.Instance(id, argocdNamespace)
		nodes := rapid.IntRange(0, 12).Draw(t, "nodes")
		server := argocd.ClusterServer(proxy, anAgent().Draw(t, "agent"))

		require.NoError(t, state.SetAppResourcesTree(instance, &v1alpha1.ApplicationTree{Nodes: make([]v1alpha1.ResourceNode, nodes)}))
		require.Len(t, written.keys, max(nodes, 1), "one key for each part of the tree")
		for i, key := range written.keys {
			parsed := keys.Space{}.Key([]byte(key))
			require.Equal(t, keys.Tree, parsed.Kind, key)
			require.Equal(t, instance, parsed.Name, key)
			require.Equal(t, i > 0, parsed.Sharded(), key)
			require.Equal(t, format, parsed.Format(), key)
			require.Equal(t, key, keys.Space{}.Tree(instance, i, format))
			require.Equal(t, id, argocd.ParseInstance(parsed.Name, argocdNamespace))
		}
		require.Len(t, written.channels, 1)
		channel, ok := keys.Space{}.Channel(written.channels[0])
		require.True(t, ok)
		require.Equal(t, instance, channel.Name)

		*written = recorder{}
		require.NoError(t, state.SetAppManagedResources(instance, []*v1alpha1.ResourceDiff{{}}))
		require.NoError(t, state.SetClusterInfo(server, &v1alpha1.ClusterInfo{}))
		require.Len(t, written.keys, 2)
		for i, want := range []keys.Key{{Kind: keys.Managed, Name: instance}, {Kind: keys.Cluster, Name: server}} {
			parsed := keys.Space{}.Key([]byte(written.keys[i]))
			require.Equal(t, want.Kind, parsed.Kind, written.keys)
			require.Equal(t, want.Name, parsed.Name, written.keys)
			require.Equal(t, format, parsed.Format(), written.keys)
		}
		local := keys.Space{}.Key([]byte(written.keys[1])).LocalCluster()
		require.Equal(t, clusterKey(t, state, written), local)
	})
}

// clusterKey is where Argo CD keeps the state of the cluster that it runs on.
func clusterKey(t *rapid.T, state *appstate.Cache, written *recorder) string {
	*written = recorder{}
	require.NoError(t, state.SetClusterInfo(inClusterServer, &v1alpha1.ClusterInfo{}))
	require.Len(t, written.keys, 1)
	return written.keys[0]
}
