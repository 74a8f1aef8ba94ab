package provision

import (
	"crypto/pbkdf2"
	"crypto/sha1" //nolint:gosec // the pre-shared key of IEEE 802.11 is defined with it
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Paths of the files that are written, relative to the root.
const (
	hostnameFile   = "etc/hostname"
	hostsFile      = "etc/hosts"
	zoneFile       = "etc/timezone"
	interfacesFile = "etc/network/interfaces"
	wifiFile       = "etc/wpa_supplicant.conf"
	resolverFile   = "etc/resolv.conf.provisioned"
	keysFile       = "etc/dropbear/authorized_keys"
	kubeconfigFile = "etc/kubernetes/kubelet.conf"
	authorityFile  = "etc/kubernetes/pki/ca.crt"
	// supplicantProgram is in images of boards with Wi-Fi.
	supplicantProgram = "usr/sbin/wpa_supplicant"
	// JoinFile has the Join as JSON. Whoever has joined the cluster deletes it.
	JoinFile = "etc/kubernetes/join.json"
)

// File is a file that provisioning writes.
type File struct {
	// Path is relative to the root.
	Path string
	Mode fs.FileMode
	Data []byte
}

// Files returns the files of a valid configuration.
func (c *Config) Files() ([]File, error) {
	var files []File
	add := func(path string, mode fs.FileMode, text string) {
		files = append(files, File{path, mode, []byte(text)})
	}
	if c.Hostname != "" {
		add(hostnameFile, 0o644, c.Hostname+"\n")
		add(hostsFile, 0o644, "127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t"+c.Hostname+"\n")
	}
	if c.TimeZone != "" {
		add(zoneFile, 0o644, c.TimeZone+"\n")
	}
	if n := c.Network; n != nil {
		if n.WiFi != nil {
			text, err := n.WiFi.supplicant()
			if err != nil {
				return nil, err
			}
			add(wifiFile, 0o600, text)
		}
		add(interfacesFile, 0o644, n.interfaces())
		if len(n.Nameservers) > 0 {
			add(resolverFile, 0o644, "nameserver "+strings.Join(n.Nameservers, "\nnameserver ")+"\n")
		}
	}
	if c.SSH != nil && len(c.SSH.AuthorizedKeys) > 0 {
		var text strings.Builder
		for _, k := range c.SSH.AuthorizedKeys {
			text.WriteString(strings.Join(strings.Fields(k), " ") + "\n")
		}
		add(keysFile, 0o600, text.String())
	}
	if c.Join != nil {
		data, err := json.Marshal(c.Join)
		if err != nil {
			return nil, err
		}
		add(JoinFile, 0o600, string(data)+"\n")
	}
	if c.Kubeconfig != "" {
		authority, err := c.authority()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
		add(authorityFile, 0o644, string(authority))
		add(kubeconfigFile, 0o600, c.Kubeconfig)
	}
	return files, nil
}

// device returns the name of the interface.
func (n *Network) device() string {
	switch {
	case n.Interface != "":
		return n.Interface
	case n.WiFi != nil:
		return "wlan0"
	}
	return "eth0"
}

// interfaces returns the content of interfaces(5), as BusyBox's ifup reads it.
func (n *Network) interfaces() string {
	var b strings.Builder
	device := n.device()
	fmt.Fprintf(&b, "# Written from the provisioning file.\nauto lo\niface lo inet loopback\n\nauto %s\n", device)
	wifi := ""
	if n.WiFi != nil {
		wifi = "\twpa-conf /" + wifiFile + "\n"
	}
	if len(n.Addresses) == 0 {
		fmt.Fprintf(&b, "iface %s inet dhcp\n%s\twait-delay 15\n", device, wifi)
		return b.String()
	}
	gateway, _ := netip.ParseAddr(n.Gateway) // valid or empty
	for i, text := range n.Addresses {
		p := netip.MustParsePrefix(text)
		// BusyBox's ifup reads the mask of IPv4 in dotted notation alone.
		family, mask := "inet", net.IP(net.CIDRMask(p.Bits(), 32)).String()
		if p.Addr().Is6() {
			family, mask = "inet6", strconv.Itoa(p.Bits())
		}
		fmt.Fprintf(&b, "iface %s %s static\n", device, family)
		if i == 0 {
			b.WriteString(wifi)
		}
		fmt.Fprintf(&b, "\taddress %s\n\tnetmask %s\n", p.Addr(), mask)
		if gateway.IsValid() && gateway.Is6() == p.Addr().Is6() {
			fmt.Fprintf(&b, "\tgateway %s\n", gateway)
			gateway = netip.Addr{}
		}
	}
	return b.String()
}

// supplicant returns the configuration of wpa_supplicant. It has the key that is derived
// from the passphrase, and not the passphrase: other networks may have the same one.
func (w *WiFi) supplicant() (string, error) {
	key, err := pbkdf2.Key(sha1.New, w.Passphrase, []byte(w.SSID), 4096, 32)
	if err != nil {
		return "", fmt.Errorf("derive Wi-Fi key: %w", err)
	}
	text := "# Written from the provisioning file.\nctrl_interface=/run/wpa_supplicant\n"
	if w.Country != "" {
		text += "country=" + w.Country + "\n"
	}
	return text + fmt.Sprintf("network={\n\tssid=%s\n\tpsk=%s\n}\n", hexText(w.SSID), hex.EncodeToString(key)), nil
}
