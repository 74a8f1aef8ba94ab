package agent

import (
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/resource/userns"
)

// podUsers gives pods users of their own. Most nodes have no such pod, so
// nothing is read before the first one; and what is wrong with it then is
// that pod's trouble alone.
type podUsers struct {
	cfg *config.Config

	mu        sync.Mutex
	allocator *userns.Allocator
}

// Get is that of userns.Allocator.
func (u *podUsers) Get(uid types.UID) (*runtimeapi.UserNamespace, error) {
	a, err := u.open()
	if err != nil {
		return nil, err
	}
	return a.Get(uid)
}

// Release is that of userns.Allocator. What an earlier run of the agent gave
// is on the disk, and goes with the pod's folder.
func (u *podUsers) Release(uid types.UID) error {
	u.mu.Lock()
	a := u.allocator
	u.mu.Unlock()
	if a == nil {
		return nil
	}
	return a.Release(uid)
}

func (u *podUsers) open() (*userns.Allocator, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.allocator != nil {
		return u.allocator, nil
	}
	var perPod uint32
	if c := u.cfg.Kubelet.UserNamespaces; c != nil && c.IDsPerPod != nil {
		perPod = uint32(*c.IDsPerPod)
	}
	first, length, err := userns.Range(os.DirFS("/"), perPod)
	if err != nil {
		return nil, fmt.Errorf("find the ids for pods with hostUsers: false: %w", err)
	}
	u.allocator, err = userns.New(userns.Config{
		PodsDir: u.cfg.Paths.Pods, First: first, Length: length, PerPod: perPod, MaxPods: int(u.cfg.Kubelet.MaxPods),
	})
	return u.allocator, err
}
