package volume

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/pod"
)

const (
	// secretMode is the mode of a token if the pod has a single user or an
	// fsGroup.
	secretMode int32 = 0o600
	// defaultTokenLife is the API's default lifetime of a token in seconds.
	defaultTokenLife = 3600
	// maxTokenAge is the maximum age of a token before it is renewed
	// (pkg/kubelet/token).
	maxTokenAge = 24 * time.Hour
)

func (c *collector) token(ctx context.Context, source *v1.ServiceAccountTokenProjection) error {
	life := time.Duration(min(ptr.Deref(source.ExpirationSeconds, defaultTokenLife), 1<<32)) * time.Second // the API's limit
	token, expires, err := c.in.Objects.Token(ctx, c.pod, source.Audience, life)
	if err != nil {
		return fmt.Errorf("request token of service account %q: %w", c.pod.Spec.ServiceAccountName, err)
	}
	if at := renewalTime(time.Now(), expires, life); c.result.Refresh.IsZero() || at.Before(c.result.Refresh) {
		c.result.Refresh = at
	}
	return c.putPrivate(source.Path, []byte(token))
}

// renewalTime returns the time at which a token is requested again: when a fifth of
// its lifetime is left or it is a day old.
func renewalTime(now, expires time.Time, life time.Duration) time.Time {
	at := expires.Add(-life / 5)
	if day := expires.Add(maxTokenAge - life); day.Before(at) {
		at = day
	}
	// The node's clock may be wrong: do not request tokens in a tight loop.
	if soonest := now.Add(10 * time.Second); at.Before(soonest) {
		return soonest
	}
	return at
}

func (c *collector) trustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) error {
	if err := c.explicitPath(source.Path); err != nil {
		return err
	}
	pem, err := c.in.Objects.TrustBundle(ctx, source)
	if apierrors.IsNotFound(err) && ptr.Deref(source.Optional, false) {
		pem, err = "", nil
	}
	if err != nil {
		return fmt.Errorf("read ClusterTrustBundle: %w", err)
	}
	return c.putPrivate(source.Path, []byte(pem))
}

// putPrivate adds a file that belongs to the pod's single user, if there is one. If there is
// one, or the pod has an fsGroup, the mode is secretMode. The writer adds the permissions
// of the group.
func (c *collector) putPrivate(path string, data []byte) error {
	mode := c.mode
	user, one := userOf(c.pod)
	if _, group := c.fsGroup(); one || group {
		mode = secretMode
	}
	if err := c.put(path, data, mode); err != nil {
		return err
	}
	file := c.files[filepath.Clean(path)]
	file.user = user
	c.files[filepath.Clean(path)] = file
	return nil
}

// userOf returns the user of all containers of the pod, if each sets runAsUser and
// all are equal (FsUserFrom in pkg/volume/util); else -1.
func userOf(p *v1.Pod) (int, bool) {
	user := -1
	for c := range pod.Containers(&p.Spec) {
		var asked *int64
		if p.Spec.SecurityContext != nil {
			asked = p.Spec.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil {
			asked = cmp.Or(c.SecurityContext.RunAsUser, asked)
		}
		if asked == nil || user >= 0 && int64(user) != *asked || *asked < 0 || *asked > 1<<31-1 {
			return -1, false
		}
		user = int(*asked)
	}
	return user, user >= 0
}
