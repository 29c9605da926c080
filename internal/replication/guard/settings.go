package guard

import (
	"errors"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Settings are the limits of the guard, as an operator sets them.
type Settings struct{ Limits converge.Guard }

// Declare declares the settings of a program whose variables begin with a prefix.
func (s *Settings) Declare(set *settings.Set, prefix string) {
	usual := converge.DefaultGuard()
	set.Int(&s.Limits.Floor, "deletion-guard-floor", prefix+"_DELETION_GUARD_FLOOR", usual.Floor,
		"how many objects of a kind a comparison may delete without an operator's confirmation, unless they are all", settings.NonNegative)
	set.Int(&s.Limits.Share, "deletion-guard-share", prefix+"_DELETION_GUARD_SHARE", usual.Share,
		"what percentage it may delete, if that is more; 100 turns the deletion guard off", checkPercentage)
}

func checkPercentage(n int) error {
	if n < 0 || n > 100 {
		return errors.New("want a percentage, from 0 to 100")
	}
	return nil
}
