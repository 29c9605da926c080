package main

import (
	"slices"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/carry"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/crowd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/reach"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// suite is parts that are measured on one lab, which is started when one of them is asked for, and stopped before that of the
// next suite is.
type suite struct {
	names   []string // of the parts
	lab     lab.Options
	targets []figures.Target
	parts   func(*lab.Lab) []contest.Part
}

// wanted are those of its parts that are among the names.
func (s suite) wanted(names []string) map[string]bool {
	wanted := make(map[string]bool)
	for _, name := range s.names {
		if slices.Contains(names, name) {
			wanted[name] = true
		}
	}
	return wanted
}

// suites are all that there are.
func (o options) suites() []suite {
	return []suite{
		{
			names: carry.Names(), lab: carry.Lab(), targets: carry.Targets(),
			parts: func(l *lab.Lab) []contest.Part {
				return carry.Parts(carry.Options{
					Lab: l, Applications: o.applications, Samples: o.samples, Changes: o.changes,
					PrincipalArgs: o.principalArgs, AgentArgs: o.agentArgs,
				})
			},
		},
		{
			names: reach.Names(), lab: reach.Lab(o.principalArgs, o.agentArgs), targets: reach.Targets(),
			parts: func(l *lab.Lab) []contest.Part {
				return reach.Parts(reach.Options{
					Lab: l, Duration: time.Duration(o.seconds) * time.Second, Body: o.megabytes * 1_000_000, Line: o.line, Requests: o.requests,
					KubeproxyArgs: o.kubeproxyArgs, RedisproxyArgs: o.redisproxyArgs,
				})
			},
		},
		{
			names: crowd.Names(), lab: crowd.Lab(), targets: crowd.Targets(counts(o.fleetSizes)),
			parts: func(l *lab.Lab) []contest.Part {
				return crowd.Parts(crowd.Options{
					Lab: l, Sizes: counts(o.fleetSizes), Applications: o.fleetApplications, Most: o.fleetMost, Seconds: o.fleetSeconds,
					Principals: counts(o.fleetPrincipals), PerSecond: o.fleetPerSecond,
					PrincipalArgs: o.principalArgs,
				})
			},
		},
	}
}
