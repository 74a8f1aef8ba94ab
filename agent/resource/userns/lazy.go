package userns

import (
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
)

// Lazy opens the node's Allocator for the first pod with hostUsers: false: most
// nodes have none, and a configuration that has no IDs for it is an error of that
// pod alone. It is safe for concurrent use.
type Lazy struct {
	// Config is read when the allocator is opened.
	Config *config.Config

	mu        sync.Mutex
	allocator *Allocator
}

// Get is Allocator.Get.
func (l *Lazy) Get(uid types.UID) (*runtimeapi.UserNamespace, error) {
	a, err := l.open()
	if err != nil {
		return nil, err
	}
	return a.Get(uid)
}

// Release is Allocator.Release. Without an allocator it removes the file of an earlier
// process of the agent, so that an allocator that is opened later does not read it.
func (l *Lazy) Release(uid types.UID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.allocator == nil {
		return (&Allocator{cfg: Config{PodsDir: l.Config.Paths.Pods}}).Release(uid)
	}
	return l.allocator.Release(uid)
}

func (l *Lazy) open() (*Allocator, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.allocator != nil {
		return l.allocator, nil
	}
	var perPod uint32
	if c := l.Config.Kubelet.UserNamespaces; c != nil && c.IDsPerPod != nil {
		perPod = uint32(*c.IDsPerPod)
	}
	first, length, err := Range(os.DirFS("/"), perPod)
	if err != nil {
		return nil, fmt.Errorf("find the IDs for pods with hostUsers: false: %w", err)
	}
	l.allocator, err = New(Config{
		PodsDir: l.Config.Paths.Pods, First: first, Length: length, PerPod: perPod, MaxPods: int(l.Config.Kubelet.MaxPods),
	})
	return l.allocator, err
}
