package preflight

// judgeSandboxImage: each pod needs the image, and a board may have no registry
// to pull it from when its first pod starts.
func judgeSandboxImage(s *SandboxImage) []Finding {
	const id = "sandbox-image"
	switch {
	case s.Name == "" || s.Present == Unknown:
		return nil
	case s.Present == No:
		return []Finding{warn(id, "the image of pod sandboxes, "+s.Name+", is not there: the container runtime pulls it for the first pod, which fails without a registry",
			"put an archive that has an image of this name into imagesFolder, or pull it now (crictl pull "+s.Name+"), or name one that is there: pinned_images.sandbox in /etc/containerd/config.toml, sandbox_image before containerd 2.0")}
	case s.Pinned == No:
		return []Finding{warn(id, "the image of pod sandboxes, "+s.Name+", is not pinned: image garbage collection may remove it",
			"name it exactly so in /etc/containerd/config.toml (pinned_images.sandbox, sandbox_image before containerd 2.0) and restart containerd")}
	}
	return []Finding{ok(id, "the image of pod sandboxes, %s, is there and pinned", s.Name)}
}
