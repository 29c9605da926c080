package spokes

import (
	"strings"

	"github.com/tidwall/match"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
)

// Subscriber gets the messages that agents' Argo CD publishes.
type Subscriber interface {
	// Message delivers a message on a channel, by the name that it has on the hub. pattern is the one that matched, empty for
	// a subscription to the channel itself. It must not wait, and not call Spokes.
	Message(pattern, channel string, payload []byte)
}

// topic is a channel of an agent's Redis.
type topic struct{ agent, instance, rest string }

// channel is a channel that somebody subscribes to, by the name that it has on the hub.
type channel struct {
	name        string
	key         keys.Key
	topic       topic // its zero value: no agent owns it
	subscribers map[Subscriber]none
}

// notify delivers a message to all who subscribe to the channels.
func notify(channels map[*channel]none, payload []byte) {
	for c := range channels {
		for subscriber := range c.subscribers {
			subscriber.Message("", c.name, payload)
		}
	}
}

// Subscribe has a subscriber get the messages of a channel while an agent owns it.
func (s *Spokes) Subscribe(subscriber Subscriber, name string) {
	key, ok := s.options.Space.Channel(name)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	if c == nil {
		c = &channel{name: name, key: key, subscribers: make(map[Subscriber]none)}
		s.channels[name] = c
	}
	c.subscribers[subscriber] = none{}
	if s.subscribed[subscriber] == nil {
		s.subscribed[subscriber] = make(map[string]none)
	}
	s.subscribed[subscriber][name] = none{}
	s.assignOwner(c)
}

// assignOwner finds out which agent owns a channel now. It is called with mu held.
func (s *Spokes) assignOwner(c *channel) {
	var now topic
	if agent, instance, ok := s.options.Directory.Owner(c.key.Name); ok {
		now = topic{agent, instance, c.key.Rest}
	}
	if now == c.topic {
		return
	}
	moved := c.topic.agent != ""
	s.unassign(c)
	if c.topic = now; now.agent == "" {
		return
	}
	if s.topics[now] == nil {
		s.topics[now] = make(map[*channel]none)
	}
	s.topics[now][c] = none{}
	p := s.spoke(now.agent)
	p.subscribers++
	p.ensureStream()
	if moved && p.streamUp { // messages may have been missed meanwhile
		notify(map[*channel]none{c: {}}, nil)
	}
}

// unassign takes a channel from the agent that owns it.
func (s *Spokes) unassign(c *channel) {
	if c.topic.agent == "" {
		return
	}
	p := s.spokes[c.topic.agent]
	p.subscribers--
	p.forgetIfGone()
	if delete(s.topics[c.topic], c); len(s.topics[c.topic]) == 0 {
		delete(s.topics, c.topic)
	}
	c.topic = topic{}
}

// Unsubscribe ends a subscription to a channel.
func (s *Spokes) Unsubscribe(subscriber Subscriber, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsubscribe(subscriber, name)
}

func (s *Spokes) unsubscribe(subscriber Subscriber, name string) {
	if delete(s.subscribed[subscriber], name); len(s.subscribed[subscriber]) == 0 {
		delete(s.subscribed, subscriber)
	}
	c := s.channels[name]
	if c == nil {
		return
	}
	if delete(c.subscribers, subscriber); len(c.subscribers) == 0 {
		s.unassign(c)
		delete(s.channels, name)
	}
}

// SubscribePattern has a subscriber get the messages of all agents' channels that a pattern matches.
func (s *Spokes) SubscribePattern(subscriber Subscriber, pattern string) {
	if !s.mayMatchAgents(pattern) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.patterns[pattern] == nil {
		s.patterns[pattern] = make(map[Subscriber]none)
	}
	s.patterns[pattern][subscriber] = none{}
	s.ensurePatternStreams()
}

// mayMatchAgents reports whether a pattern may match an agent's channel.
func (s *Spokes) mayMatchAgents(pattern string) bool {
	head, all := keys.PatternHead(pattern), s.options.Space.Prefix+keys.Key{Kind: keys.Managed}.Path("")
	return strings.HasPrefix(all, head) || strings.HasPrefix(head, all)
}

// ensurePatternStreams opens a stream to all connected agents, if somebody subscribes to a pattern.
func (s *Spokes) ensurePatternStreams() {
	if len(s.patterns) == 0 {
		return
	}
	for _, agent := range s.options.Directory.All() {
		if agent.Connected {
			s.spoke(agent.Name).ensureStream()
		}
	}
}

// UnsubscribePattern ends a subscription to a pattern.
func (s *Spokes) UnsubscribePattern(subscriber Subscriber, pattern string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsubscribePattern(subscriber, pattern)
}

func (s *Spokes) unsubscribePattern(subscriber Subscriber, pattern string) {
	if delete(s.patterns[pattern], subscriber); len(s.patterns[pattern]) == 0 {
		delete(s.patterns, pattern)
	}
}

// UnsubscribeAll ends all subscriptions of a subscriber.
func (s *Spokes) UnsubscribeAll(subscriber Subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.subscribed[subscriber] {
		s.unsubscribe(subscriber, name)
	}
	for pattern := range s.patterns {
		s.unsubscribePattern(subscriber, pattern)
	}
}

// notifyPatterns delivers a message to those who subscribe to a pattern that matches. It is called with mu held.
func (s *Spokes) notifyPatterns(agent string, key keys.Key, payload []byte) {
	if len(s.patterns) == 0 {
		return
	}
	instance, ok := s.options.Directory.Hub(agent, key.Name)
	if !ok {
		return
	}
	name := s.options.Space.Prefix + key.Path(instance)
	for pattern, subscribers := range s.patterns {
		if !match.Match(name, pattern) {
			continue
		}
		for subscriber := range subscribers {
			subscriber.Message(pattern, name, payload)
		}
	}
}
