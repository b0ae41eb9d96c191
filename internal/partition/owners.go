package partition

// OwnersOf returns the members of a group, in the order of members, and the partitions that none of
// them owns. The topic has n partitions.
func OwnersOf(group string, n int, members []Member) (owners []Member, free []int) {
	owned := map[int]bool{}
	for _, m := range members {
		if m.Group != group {
			continue
		}
		owners = append(owners, m)
		for _, p := range m.Owned {
			owned[p] = true
		}
	}
	for p := range n {
		if !owned[p] {
			free = append(free, p)
		}
	}
	return owners, free
}
