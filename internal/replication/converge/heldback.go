package converge

import "maps"

// heldBack are the deletions of a facet that wait for an operator, by the session's outbox. Outbox.mu guards it.
type heldBack struct {
	found  map[Key]State        // a resync found them, and the guard holds them
	along  sparse[Key, State]   // deletions of objects that were taken along
	total  int                  // that the replica held when it was compared last
	stale  bool                 // along has changed since the observer was told
	paused *PausedDeletions     // what the observer was told, nil if nothing waits
	passed sparse[string, bool] // the tokens that were confirmed
}

// has reports whether the deletion of an object waits.
func (h *heldBack) has(k Key) bool {
	_, found := h.found[k]
	_, along := h.along[k]
	return found || along
}

// drop notes that an object is not to be deleted any more, or may be now.
func (h *heldBack) drop(k Key) {
	if _, along := h.along[k]; along {
		h.along.remove(k)
		h.stale = true
	}
}

// hold notes that the deletion of an object waits, since it was taken along.
func (h *heldBack) hold(k Key, s State) {
	if before, along := h.along[k]; !along || before.UID != s.UID {
		h.along.set(k, s)
		h.stale = true
	}
}

// holdsBack reports whether a key is not to be sent for now, because its object went, or is going, with something else, and notes
// that it waits. peer is what the peer holds. o.mu is held.
func (o *outbox) holdsBack(k Key, obj Object, exists bool, peer State) bool {
	state := peer
	if exists {
		if !obj.Deleting || peer == (State{}) && !o.uncertain[k] {
			o.heldBack.drop(k)
			return false
		}
		state = obj.State
	}
	switch o.source.verdict(state.UID, exists) {
	case TakenAlong:
		if o.session.peer.guard().isOff() {
			return false
		}
		o.heldBack.hold(k, state)
		return true
	case Undecided:
		return true
	default:
		o.heldBack.drop(k)
		return false
	}
}

// takeAlong removes from the deletions that a resync found those that are undecided, for which another resync comes, and those that
// were taken along, and has these wait together with the objects that are being taken along. o.mu is held.
func (o *outbox) takeAlong(deletions map[Key]State) {
	before := o.heldBack.along
	o.heldBack.along, o.heldBack.stale = nil, false
	if o.source.Collateral == nil || !o.source.Collateral.Any() {
		return
	}
	for k, s := range deletions {
		switch o.source.verdict(s.UID, false) {
		case TakenAlong:
			if o.session.peer.guard().isOff() {
				continue
			}
			o.heldBack.hold(k, s)
			delete(deletions, k)
		case Undecided:
			delete(deletions, k)
		case Deliberate:
		}
	}
	recheck := func(k Key) {
		obj, exists := o.source.Project(k)
		if exists || o.pendingDelete[k] {
			o.holdsBack(k, obj, exists, o.held[k])
		}
	}
	for k := range before {
		recheck(k)
	}
	for k := range o.uncertain {
		recheck(k)
	}
}

// updatePaused tells the observer what waits, if that has changed. o.mu is held.
func (o *outbox) updatePaused() {
	h := &o.heldBack
	h.stale = false
	h.paused = nil
	if len(h.found)+len(h.along) > 0 {
		h.paused = newPausedDeletions(o.facet, h.found, h.along, h.total)
	}
	o.session.peer.notePaused(o.facet, h.paused)
}

// confirmDeletions lets the deletions go that wait for this token, and reports whether there were any.
func (o *outbox) confirmDeletions(token string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := &o.heldBack
	if h.stale {
		o.updatePaused()
	}
	if h.paused == nil || h.paused.Token != token {
		return false
	}
	h.passed.set(token, true)
	found, along := h.found, h.along
	h.found, h.along = nil, nil
	if len(along) > 0 {
		uids := make([]string, 0, len(along))
		for _, s := range along {
			uids = append(uids, s.UID)
		}
		o.source.Collateral.Release(uids)
	}
	o.scheduleDeletes(found)
	for k, s := range maps.Clone(along) {
		if _, exists := o.source.Project(k); exists {
			o.backlog.add(k) // what is sent describes its deletion
			delete(along, k)
		} else if s.UID == "" {
			delete(along, k)
		}
	}
	o.scheduleDeletes(along)
	o.updatePaused()
	return true
}
