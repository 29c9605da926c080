package spokes

import (
	"strings"

	"github.com/tidwall/match"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
)

// Subscriber is told what agents announce.
type Subscriber interface {
	// Message tells of a message on a channel, by the name that it has on the hub, and because of which pattern, if it was
	// one. It must not wait, and not call Spokes.
	Message(pattern, channel string, payload []byte)
}

// subject is what is announced on a channel of an agent's.
type subject struct{ agent, instance, rest string }

// channel is one, by the name that it has on the hub, that somebody follows.
type channel struct {
	name    string
	key     keys.Key
	of      subject // its zero value: it is not an agent's
	members map[Subscriber]none
}

// tell gives a message to all who follow the channels.
func tell(channels map[*channel]none, payload []byte) {
	for c := range channels {
		for member := range c.members {
			member.Message("", c.name, payload)
		}
	}
}

// Subscribe has a subscriber told of a channel, if it is or becomes an agent's.
func (s *Spokes) Subscribe(member Subscriber, name string) {
	key, ok := s.options.Space.Channel(name)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	if c == nil {
		c = &channel{name: name, key: key, members: make(map[Subscriber]none)}
		s.channels[name] = c
	}
	c.members[member] = none{}
	if s.subscribed[member] == nil {
		s.subscribed[member] = make(map[string]none)
	}
	s.subscribed[member][name] = none{}
	s.assign(c)
}

// assign finds out whose a channel is now. It is called with mu held.
func (s *Spokes) assign(c *channel) {
	var of subject
	if agent, instance, ok := s.options.Roster.Owner(c.key.Name); ok {
		of = subject{agent, instance, c.key.Rest}
	}
	if of == c.of {
		return
	}
	moved := c.of.agent != ""
	s.release(c)
	if c.of = of; of.agent == "" {
		return
	}
	if s.subjects[of] == nil {
		s.subjects[of] = make(map[*channel]none)
	}
	s.subjects[of][c] = none{}
	p := s.spoke(of.agent)
	p.followers++
	p.follow()
	if moved && p.live { // what was announced meanwhile was not heard
		tell(map[*channel]none{c: {}}, nil)
	}
}

// release takes a channel from the agent that it is of.
func (s *Spokes) release(c *channel) {
	if c.of.agent == "" {
		return
	}
	s.spokes[c.of.agent].followers--
	if delete(s.subjects[c.of], c); len(s.subjects[c.of]) == 0 {
		delete(s.subjects, c.of)
	}
	c.of = subject{}
}

// Unsubscribe has a subscriber told no longer of a channel.
func (s *Spokes) Unsubscribe(member Subscriber, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsubscribe(member, name)
}

func (s *Spokes) unsubscribe(member Subscriber, name string) {
	if delete(s.subscribed[member], name); len(s.subscribed[member]) == 0 {
		delete(s.subscribed, member)
	}
	c := s.channels[name]
	if c == nil {
		return
	}
	if delete(c.members, member); len(c.members) == 0 {
		s.release(c)
		delete(s.channels, name)
	}
}

// SubscribePattern has a subscriber told of the channels of all agents that a pattern matches.
func (s *Spokes) SubscribePattern(member Subscriber, pattern string) {
	if !s.concerns(pattern) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.patterns[pattern] == nil {
		s.patterns[pattern] = make(map[Subscriber]none)
	}
	s.patterns[pattern][member] = none{}
	s.followPatterns()
}

// concerns reports whether a pattern may match an agent's channel.
func (s *Spokes) concerns(pattern string) bool {
	head, all := keys.PatternHead(pattern), s.options.Space.Prefix+keys.Key{Kind: keys.Managed}.Path("")
	return strings.HasPrefix(all, head) || strings.HasPrefix(head, all)
}

// followPatterns has all agents followed that are there, if somebody wants to know of any.
func (s *Spokes) followPatterns() {
	if len(s.patterns) == 0 {
		return
	}
	for _, agent := range s.options.Roster.All() {
		if agent.Connected {
			s.spoke(agent.Name).follow()
		}
	}
}

// UnsubscribePattern ends that.
func (s *Spokes) UnsubscribePattern(member Subscriber, pattern string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsubscribePattern(member, pattern)
}

func (s *Spokes) unsubscribePattern(member Subscriber, pattern string) {
	if delete(s.patterns[pattern], member); len(s.patterns[pattern]) == 0 {
		delete(s.patterns, pattern)
	}
}

// Leave has a subscriber told of nothing more.
func (s *Spokes) Leave(member Subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.subscribed[member] {
		s.unsubscribe(member, name)
	}
	for pattern := range s.patterns {
		s.unsubscribePattern(member, pattern)
	}
}

// tellPatterns gives a message to those who follow patterns. It is called with mu held.
func (s *Spokes) tellPatterns(agent string, key keys.Key, payload []byte) {
	if len(s.patterns) == 0 {
		return
	}
	instance, ok := s.options.Roster.Hub(agent, key.Name)
	if !ok {
		return
	}
	name := s.options.Space.Prefix + key.Path(instance)
	for pattern, members := range s.patterns {
		if !match.Match(name, pattern) {
			continue
		}
		for member := range members {
			member.Message(pattern, name, payload)
		}
	}
}
