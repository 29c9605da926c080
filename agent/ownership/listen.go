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

// silence is how long nothing may come before the connection is tried. When it is tried in vain it is given up.
const silence = 15 * time.Second

var errSilent = errors.New("nothing comes, not even an answer to a ping")

// listen keeps a subscription to what the controller announces.
func (t *Trees) listen(ctx context.Context) {
	fresh := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second}
	backoff, told := fresh, false
	for ctx.Err() == nil {
		worked, err := t.subscribe(ctx)
		if ctx.Err() != nil {
			return
		}
		if worked {
			backoff, told = fresh, false
		}
		if !told {
			told = true
			t.options.Logger.Warn("The announcements of Argo CD's controller are not heard: resource trees are read for each request", "error", err)
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// subscribe hears announcements until that fails, and reports whether it worked for a time.
func (t *Trees) subscribe(ctx context.Context) (worked bool, err error) {
	subscription := t.options.Redis.PSubscribe(ctx, t.space().Pattern(keys.Managed))
	// A read does not end with the context, but with the connection.
	stop := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer func() {
		stop()
		_ = subscription.Close()
		t.doubt(false)
	}()
	for quiet := false; ; {
		message, err := subscription.ReceiveTimeout(ctx, silence)
		var timeout net.Error
		switch {
		case err == nil:
			quiet = false
		case errors.As(err, &timeout) && timeout.Timeout() && !quiet:
			quiet = true
			if err := subscription.Ping(ctx); err != nil {
				return worked, fmt.Errorf("ping: %w", err)
			}
		case quiet:
			return worked, errSilent
		default:
			return worked, err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			worked = true
			t.doubt(true)
		case *redis.Message:
			t.notice(m.Channel)
		}
	}
}

// doubt takes note that announcements may have been missed, and whether they are heard from now on.
func (t *Trees) doubt(subscribed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubted, t.subscribed = t.tick(), subscribed
}

// notice takes note that an application's tree has changed.
func (t *Trees) notice(channel string) {
	key, ok := t.space().Channel(channel)
	if !ok {
		return
	}
	name, version := key.Name, key.Format().Version
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.tick()
	if version != t.format.Version && version != t.announced {
		t.doubted = now // everything is looked for under the new version
	}
	t.announced = version
	if a := t.know(name); a != nil {
		a.noticed = now
	} else {
		t.doubted = now
	}
}
