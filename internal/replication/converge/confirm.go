package converge

import "context"

// confirm has keys deleted of which a resync found that the peer holds something and the source has nothing, once the source's store has
// said so too. Its cache may be behind: the object may have been created at another process, or have taken the place of one whose deletion
// was seen. What earlier resyncs found is forgotten. o.mu is held.
func (o *outbox) confirm(deletions map[Key]State) {
	o.unconfirmed, o.asking = nil, nil
	if o.source.Confirm == nil {
		o.scheduleDeletes(deletions)
		return
	}
	for k, s := range deletions {
		o.pendingDelete.remove(k)
		o.unconfirmed.set(k, s)
		o.asking = append(o.asking, k)
	}
	if len(deletions) > 0 {
		o.session.peer.work[o.facet].backlog.add(task{objectKey: objectKey{facet: o.facet}, confirms: true})
	}
}

// isUnconfirmed reports whether the source's store is asked about a key. o.mu is held.
func (o *outbox) isUnconfirmed(k Key) bool {
	_, asked := o.unconfirmed[k]
	return asked
}

// nextUnconfirmed takes out the next key that the source's store is to be asked about, and returns what the peer holds under it.
func (o *outbox) nextUnconfirmed() (k Key, held State, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.asking) > 0 {
		k, o.asking = o.asking[0], o.asking[1:]
		if held, ok = o.unconfirmed[k]; ok {
			return k, held, true
		}
	}
	return "", State{}, false
}

// askAgain undoes nextUnconfirmed: others have their turns first.
func (o *outbox) askAgain(k Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isUnconfirmed(k) {
		o.asking = append(o.asking, k)
	}
}

// answered takes in whether the source's store says that the peer should hold nothing under a key. It reports false if the store is to be
// asked again: what it had is gone meanwhile.
func (o *outbox) answered(k Key, nothing bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	held, ok := o.unconfirmed[k]
	_, exists := o.source.Project(k)
	switch {
	case !ok: // a newer resync did not find it, or the peer says that it is gone
	case exists:
		o.markHeld(k, held)
	case !nothing:
		return false
	default:
		o.scheduleDeletes(map[Key]State{k: held})
		o.session.wakeUp()
	}
	o.unconfirmed.remove(k)
	return true
}

// confirmDeletes asks the source's store about the next key that is to be deleted. One after the other is asked about, and no more than the
// peer's budget allows: it may have made them up.
func (p *Peer) confirmDeletes(ctx context.Context, t task) {
	backlog := p.work[t.facet].backlog
	s := p.current()
	if s == nil || s.outboxes[t.facet] == nil {
		backlog.done(t)
		return
	}
	o := s.outboxes[t.facet]
	k, held, ok := o.nextUnconfirmed()
	if !ok {
		backlog.done(t)
		return
	}
	if wait := p.budget.untilConfirm(); wait > 0 {
		o.askAgain(k)
		backlog.later(t, wait)
		return
	}
	nothing, err := o.source.Confirm(ctx, k, held.UID)
	if err != nil || !o.answered(k, nothing) {
		o.askAgain(k)
		backlog.retry(t)
		return
	}
	backlog.add(t)
	backlog.done(t)
}
