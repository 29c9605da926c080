package ownership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
)

// pingAfter is how long a subscription may be silent before it is pinged, and how long the ping may take.
const pingAfter = 15 * time.Second

var errPingTimeout = errors.New("no reply to a ping")

// watchNotifications keeps a subscription to the controller's notifications.
func (x *Index) watchNotifications(ctx context.Context) {
	fresh := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second}
	backoff, logged := fresh, false
	for ctx.Err() == nil {
		subscribed, err := x.subscribe(ctx)
		if ctx.Err() != nil {
			return
		}
		if subscribed {
			backoff, logged = fresh, false
		}
		if !logged {
			logged = true
			x.options.Logger.Warn("Lost subscription to Argo CD cache notifications; falling back to one Redis read per request", "error", err)
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// subscribe receives notifications until the subscription fails. It reports whether there was a subscription.
func (x *Index) subscribe(ctx context.Context) (subscribed bool, err error) {
	subscription := x.options.Redis.PSubscribe(ctx, x.space().Pattern(keys.Managed))
	// A read ends with the connection, not with the context.
	stop := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer func() {
		stop()
		_ = subscription.Close()
		x.setSubscribed(false)
	}()
	for pinged := false; ; {
		message, err := subscription.ReceiveTimeout(ctx, pingAfter)
		var timeout net.Error
		switch {
		case err == nil:
			pinged = false
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			pinged = true
			if err := subscription.Ping(ctx); err != nil {
				return subscribed, fmt.Errorf("ping: %w", err)
			}
		case pinged:
			return subscribed, errPingTimeout
		default:
			return subscribed, err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			subscribed = true
			x.setSubscribed(true)
		case *redis.Message:
			x.applicationChanged(m.Channel)
		}
	}
}

// setSubscribed is called when a subscription begins or ends. Notifications may have been missed before.
func (x *Index) setSubscribed(subscribed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.missedAt, x.subscribed = x.tick(), subscribed
}

// applicationChanged handles a notification that the tree of an application has changed.
func (x *Index) applicationChanged(channel string) {
	key, ok := x.space().Channel(channel)
	if !ok {
		return
	}
	name, version := key.Name, key.Format().Version
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.tick()
	if version != x.format.Version && version != x.announcedVersion {
		x.missedAt = now // all keys have the new version
	}
	x.announcedVersion = version
	if a := x.addApplication(name); a != nil {
		a.changedAt = now
	} else {
		x.missedAt = now
	}
}
