package lab

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
)

// NewPrincipals makes several principals of the hub that know each other, for the caller to Start. They are called replica-0 and so on, and have
// one port, each at an address of its own, as Pods have it.
func (l *Lab) NewPrincipals(ctx context.Context, count int, options PrincipalOptions) ([]*Principal, error) {
	free, err := l.Host.Port()
	if err != nil {
		return nil, err
	}
	addresses := make([]string, count)
	for i := range count {
		addresses[i] = net.JoinHostPort(replicaAddress(i), strconv.Itoa(free))
	}
	all := make([]*Principal, count)
	for i := range count {
		own := options
		own.Args = slices.Concat([]string{
			"--listen-host=" + replicaAddress(i), "--listen-port=" + strconv.Itoa(free), "--peers=" + strings.Join(addresses, ","),
			"--pod-name=replica-" + strconv.Itoa(i),
		}, options.Args)
		p, err := l.NewPrincipal(ctx, own)
		if err != nil {
			return nil, err
		}
		p.Address = addresses[i]
		all[i] = p
	}
	return all, nil
}

// maxReplicas is how many principals NewPrincipals can make: certificates have their addresses.
const maxReplicas = 8

// replicaAddress is that of one of several principals. All of 127.0.0.0/8 is loopback's on Linux.
func replicaAddress(i int) string { return fmt.Sprintf("127.0.0.%d", 2+i) }

// startPrincipals starts the principals that the options ask for, as Lab.Principals.
func (l *Lab) startPrincipals(ctx context.Context) error {
	count := max(l.options.Principals, 1)
	var err error
	if count == 1 {
		var one *Principal
		one, err = l.NewPrincipal(ctx, l.options.Principal)
		l.Principals = []*Principal{one}
	} else {
		l.Principals, err = l.NewPrincipals(ctx, count, l.options.Principal)
	}
	if err != nil {
		return err
	}
	for _, p := range l.Principals {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	l.Principal = l.Principals[0]
	return nil
}

// spread has a link to the lab's first principal lead to all of them in turns, as the Service before them does.
func (l *Lab) spread(cable *link.Link, to *Principal) {
	if cable == nil || to != l.Principal || len(l.Principals) < 2 {
		return
	}
	addresses := make([]string, len(l.Principals))
	for i, p := range l.Principals {
		addresses[i] = p.Address
	}
	cable.Spread(addresses...)
}
