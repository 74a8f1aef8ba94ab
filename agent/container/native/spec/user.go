package spec

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxID is the highest user or group ID: runc accepts no higher one.
	maxID = math.MaxInt32
	// maxGroups is the kernel's NGROUPS_MAX.
	maxGroups = 65536
)

// user sets the user and the groups of the first process (platformSpecOpts in
// server/container_create.go and containerSpecOpts in server/container_create_linux.go).
func (b *builder) user() error {
	text, err := b.userString()
	if err != nil {
		return err
	}
	out := &b.spec.Process.User
	if out.UID, out.GID, err = b.parseUser(text); err != nil {
		return fmt.Errorf("user %q: %w", text, err)
	}
	groups, err := b.groups(text, out)
	if err != nil {
		return err
	}
	slices.Sort(groups)
	out.AdditionalGids = slices.Compact(groups)
	if n := len(out.AdditionalGids); n > maxGroups {
		return fmt.Errorf("user %q has %d groups: the kernel allows %d: remove entries from /etc/group of the image", text, n, maxGroups)
	}
	return nil
}

// userString returns the user in the form user, uid, user:group, uid:gid and so on: the
// config's, else the image's (GenerateUserString in util/util.go). "" means root.
func (b *builder) userString() (string, error) {
	user, err := idString("run_as_user", b.security.GetRunAsUser())
	if err != nil {
		return "", err
	}
	group, err := idString("run_as_group", b.security.GetRunAsGroup())
	if err != nil {
		return "", err
	}
	user = cmp.Or(b.security.GetRunAsUsername(), user)
	switch {
	case user == "" && group != "":
		return "", fmt.Errorf("security_context.run_as_group: user group %q is specified without user: set run_as_user", group)
	case user == "":
		return b.Image.User, nil
	case group == "":
		return user, nil
	}
	return user + ":" + group, nil
}

// idString returns an ID as text, "" if it is not set.
func idString(field string, id *runtimeapi.Int64Value) (string, error) {
	if id == nil {
		return "", nil
	}
	if id.GetValue() < 0 || id.GetValue() > maxID {
		return "", fmt.Errorf("security_context.%s: %d is out of range: use 0 to %d", field, id.GetValue(), maxID)
	}
	return strconv.FormatInt(id.GetValue(), 10), nil
}

// parseUser returns the IDs of a user string (WithUser in pkg/oci/spec_opts.go). A user alone
// has the group that passwd gives it. A number needs no entry: its group is 0 then. An absent
// user is 0, and so is an absent group after a colon.
func (b *builder) parseUser(text string) (uid, gid uint32, err error) {
	user, group, both := strings.Cut(text, ":")
	if strings.Contains(group, ":") {
		return 0, 0, errors.New("more than one colon: write user:group")
	}
	uid, isNumber, err := parseID(user)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case isNumber && !both:
		if entry, ok := b.Users.byID(uid); ok {
			return entry.uid, entry.gid, nil
		}
		return uid, 0, nil
	case !isNumber && user != "":
		entry, ok := b.Users.byName(user)
		if !ok {
			return 0, 0, errors.New("no users found of that name in /etc/passwd of the image: use a number")
		}
		if !both {
			return entry.uid, entry.gid, nil
		}
		uid = entry.uid
	}
	gid, isNumber, err = parseID(group)
	if !isNumber && group != "" {
		var ok bool
		if gid, ok = b.Users.groupByName(group); !ok {
			return 0, 0, errors.New("no groups found of that name in /etc/group of the image: use a number")
		}
	}
	return uid, gid, err
}

// parseID returns the ID that a text is, and whether it is a number. A number out of range is an
// error.
func parseID(text string) (id uint32, isNumber bool, err error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, false, nil // it is a name
	case err != nil, n < 0, n > maxID:
		return 0, true, fmt.Errorf("%s is out of range: use 0 to %d", text, maxID)
	}
	return uint32(n), true, nil
}

// groups returns the primary group and the supplemental groups, with duplicates. Strict
// (KEP-3619) leaves out those that only the image's /etc/group gives the user. Without
// a specified user the process is root, and has no primary group there, as in containerd.
func (b *builder) groups(text string, user *specs.User) ([]uint32, error) {
	var groups []uint32
	if text != "" {
		groups = append(groups, user.GID)
	}
	for _, id := range b.security.GetSupplementalGroups() {
		if id < 0 || id > maxID {
			return nil, fmt.Errorf("security_context.supplemental_groups: %d is out of range: use 0 to %d", id, maxID)
		}
		groups = append(groups, uint32(id))
	}
	switch policy := b.security.GetSupplementalGroupsPolicy(); policy {
	case runtimeapi.SupplementalGroupsPolicy_Strict:
		return groups, nil
	case runtimeapi.SupplementalGroupsPolicy_Merge:
		return append(append(groups, user.GID), b.imageGroups()...), nil
	default:
		return nil, fmt.Errorf("security_context.supplemental_groups_policy: %d is unknown: use Merge or Strict", policy)
	}
}

// imageGroups returns the groups that /etc/group of the image gives the user
// (WithAdditionalGIDs in pkg/oci/spec_opts.go).
func (b *builder) imageGroups() []uint32 {
	name := "0"
	switch id := b.security.GetRunAsUser(); {
	case b.security.GetRunAsUsername() != "":
		name = b.security.GetRunAsUsername()
	case id != nil:
		name = strconv.FormatInt(id.GetValue(), 10)
	case b.Image.User != "":
		name, _, _ = strings.Cut(b.Image.User, ":")
	}
	if id, isNumber, _ := parseID(name); isNumber { // parseUser has checked the range
		entry, ok := b.Users.byID(id)
		if !ok {
			return nil
		}
		name = entry.name
	}
	return b.Users.groupsOf(name)
}
