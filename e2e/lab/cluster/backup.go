package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Backup keeps a copy of all that is stored, in place of an earlier one. The API server and etcd are away while it is made.
func (c *Cluster) Backup(ctx context.Context) error {
	return c.withoutEtcd(ctx, func(data string) error { return replace(backupOf(data), data) })
}

// Restore puts back what Backup has kept. Revisions are as they were then, as after `etcdutl snapshot restore`.
func (c *Cluster) Restore(ctx context.Context) error {
	return c.withoutEtcd(ctx, func(data string) error { return replace(data, backupOf(data)) })
}

// withoutEtcd does something to the folder where etcd keeps its data.
func (c *Cluster) withoutEtcd(ctx context.Context, do func(data string) error) error {
	c.APIServer.Kill()
	if err := c.Etcd.Stop(ctx); err != nil {
		return err
	}
	if err := do(filepath.Join(c.Etcd.Dir(), dataFolder)); err != nil {
		return fmt.Errorf("data of etcd: %w", err)
	}
	if err := c.Etcd.Start(ctx); err != nil {
		return err
	}
	return c.APIServer.Start(ctx)
}

func backupOf(data string) string { return data + ".backup" }

// replace makes a folder a copy of another.
func replace(folder, by string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.CopyFS(folder, os.DirFS(by))
}
