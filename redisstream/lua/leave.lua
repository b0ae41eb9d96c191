-- leave 1: remove a member that holds nothing. With its consumer Redis would forget its entries.
-- KEYS: the stream. ARGV: group, member.
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return redis.status_reply('OK')
